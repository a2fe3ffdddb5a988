//go:build linux

package process_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/test/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, announces bool, script string) *process.Child {
	t.Helper()
	c, err := process.Start(process.Spec{
		Name: "script", Argv: []string{
			"/bin/sh", "-c", script,
		}, Log: filepath.Join(t.TempDir(), "log"), Announces: announces,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	return c
}

func TestAnnouncedChildIsMeasuredAndEnds(t *testing.T) {
	c := start(t, true, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo here; exec sleep 60")
	line, err := c.Ready(t.Context())
	if err != nil || string(line) != "here\n" {
		t.Fatalf("ready: %q, %v", line, err)
	}
	if cpu, err := process.CPU(c.PID()); err != nil || cpu <= 0 || cpu > 10*time.Second {
		t.Errorf("CPU %v, %v", cpu, err)
	}
	if m, err := process.ReadMemory(c.PID()); err != nil || m.RSS <= 0 || m.Peak < m.RSS {
		t.Errorf("memory %+v, %v", m, err)
	}
	if err := process.ResetPeak(c.PID()); err != nil {
		t.Error(err)
	}
	// sleep does not handle SIGTERM, so Stop returns an error, but the child ends.
	if err := c.Stop(10 * time.Second); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("stop: %v", err)
	}
	if err := syscall.Kill(c.PID(), 0); err != syscall.ESRCH {
		t.Errorf("the child is still there: %v", err)
	}
}

func TestStopEndsAPausedAndAnUnwillingChild(t *testing.T) {
	paused := start(t, true, "trap 'exit 0' TERM; echo here; while :; do sleep 0.01; done")
	if _, err := paused.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := paused.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := paused.Stop(10 * time.Second); err != nil {
		t.Errorf("stop a paused child: %v", err)
	}
	unwilling := start(t, true, "trap '' TERM; echo here; while :; do sleep 0.01; done")
	if _, err := unwilling.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := unwilling.Stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("stop an unwilling child: %v", err)
	}
}

func TestChildThatEndsBeforeItIsReadyShowsItsLog(t *testing.T) {
	c := start(t, true, "echo no such luck >&2; exit 3")
	if _, err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("ready: %v", err)
	}
	if err := c.Stop(time.Second); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("stop: %v", err)
	}
}
