package e2e_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	child "github.com/kubecdc/kubecdc/test/process"
)

// process is a child of the test: the agent, or a NATS server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // Of Wait; readable once done is closed.
}

// start starts cmd, which ends with the test's process if not before.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	err := child.Spawn(cmd, func(err error) {
		p.err = err
		close(p.done)
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process without a warning.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // Fails only if it has ended.
	<-p.done
}

// wait waits for the process to end by itself.
func (p *process) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timer.C:
		return fmt.Errorf("%s has not ended within %s", p.cmd.Path, d)
	}
}

// freePort is a port of 127.0.0.1 that was free a moment ago, and that no client's connection takes.
func freePort(t testing.TB) int {
	t.Helper()
	port, err := child.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
