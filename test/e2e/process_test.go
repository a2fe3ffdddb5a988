package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// process is a child of the test: the agent, or a NATS server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // Of Wait; readable once done is closed.
}

// start starts cmd. The goroutine that waits for its end is gone when done is closed.
func start(cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = sysProcAttr()
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		// The parent-death signal fires when the thread that forked ends (golang.org/issue/27505); so this one is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
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

// freePort is a port of 127.0.0.1 that was free a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// rss is the resident memory of a process in bytes; high is the most that it has ever been. Linux only.
func rss(pid int) (now, high int64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		for field, to := range map[string]*int64{"VmRSS:": &now, "VmHWM:": &high} {
			if rest, ok := strings.CutPrefix(lines.Text(), field); ok {
				if _, err := fmt.Sscanf(rest, "%d kB", to); err != nil {
					return 0, 0, fmt.Errorf("/proc/%d/status: %s %w", pid, field, err)
				}
				*to <<= 10
			}
		}
	}
	if now == 0 {
		return 0, 0, errors.New("no VmRSS: the process has ended")
	}
	return now, high, lines.Err()
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
