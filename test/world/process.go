package world

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	child "github.com/kubecdc/kubecdc/test/process"
)

// Process is a child of the test: the agent, or a NATS server.
type Process struct {
	Cmd  *exec.Cmd
	done chan struct{}
	Err  error // The error of Wait; may be read after done is closed.
}

// StartProcess starts cmd. The process ends with the test's process at the latest.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, done: make(chan struct{})}
	err := child.Spawn(cmd, func(err error) {
		p.Err = err
		close(p.done)
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill kills the process and waits for its end.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // Fails only if it has ended.
	<-p.done
}

// Wait waits for the process to end by itself.
func (p *Process) Wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.Err
	case <-timer.C:
		return fmt.Errorf("%s has not ended within %s", p.Cmd.Path, d)
	}
}

// FreePort returns a free port of 127.0.0.1, outside the range of ports for outgoing connections.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := child.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// MiB formats a number of bytes.
func MiB(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
