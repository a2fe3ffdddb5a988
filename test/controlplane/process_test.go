package controlplane_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/wait"
)

// Package suite, TestNothingIsLeft, tests that processes end with a killed parent by the kernel's
// signal. Here, only the end of its standard input can end the process.
func TestBinaryEndsWithItsStandardInput(t *testing.T) {
	t.Parallel()
	long(t)
	binary, err := controlplane.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(t.Context(), binary, "etcd", "--data-dir="+filepath.Join(dir, "etcd"),
		"--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:0",
		"--listen-peer-urls=http://127.0.0.1:0")
	cmd.Env = append(os.Environ(), "KUBECDC_EXIT_ON_STDIN_EOF=1")
	cmd.Stdout, cmd.Stderr = log, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := func() string {
		b, _ := os.ReadFile(log.Name())
		return string(b)
	}
	wait.Eventually(t, time.Minute, func() error {
		if !strings.Contains(text(), "ready to serve client requests") {
			return fmt.Errorf("etcd is not ready: %s", text())
		}
		return nil
	})
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("got %v, want exit status 1", err)
	}
	if !strings.Contains(text(), "the parent process is gone") {
		t.Fatalf("ended for another reason:\n%s", text())
	}
}

func TestFailedStartShowsTheLogAndLeavesNothing(t *testing.T) {
	long(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{APIServerArgs: []string{"--no-such-flag"}})
	if err == nil {
		cluster.Stop()
		t.Fatal("started")
	}
	for _, want := range []string{"kube-apiserver-0", "unknown flag: --no-such-flag"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
