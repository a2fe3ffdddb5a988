package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Spec says what to run.
type Spec struct {
	Name string
	Argv []string
	Env  []string // added to the environment
	Dir  string   // where it runs; "": in the caller's working directory
	// Log is the file for its standard error, and for its output where it does not announce itself.
	Log string
	// Announces says that it prints one line, and no more, when it can be used.
	Announces bool
	// Stdout and Stderr, where they are not nil, are written to instead. The child has its own copy of them.
	Stdout, Stderr *os.File
}

// Child is a running process.
type Child struct {
	Spec

	cmd    *exec.Cmd
	output *os.File      // what it announces; else nil
	done   chan struct{} // closed when it has ended
	err    error         // of Wait; readable once done is closed
}

// Start returns as soon as the process exists.
func Start(spec Spec) (*Child, error) {
	log, err := os.Create(spec.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()                                   // the child has its own copy
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...) //nolint:noctx // It ends with Stop or Kill, which ask it first.
	cmd.Stdout, cmd.Stderr = log, log
	if spec.Stdout != nil {
		cmd.Stdout = spec.Stdout
	}
	if spec.Stderr != nil {
		cmd.Stderr = spec.Stderr
	}
	cmd.Env, cmd.Dir = append(os.Environ(), spec.Env...), spec.Dir
	c := &Child{Spec: spec, cmd: cmd, done: make(chan struct{})}
	if spec.Announces {
		output, child, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer child.Close()
		cmd.Stdout, c.output = child, output
	}
	err = Spawn(cmd, func(err error) {
		c.err = err
		close(c.done)
	})
	if err != nil {
		if c.output != nil {
			_ = c.output.Close()
		}
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	return c, nil
}

// Ready returns the line that the child announces itself with.
func (c *Child) Ready(ctx context.Context) ([]byte, error) {
	stop := context.AfterFunc(ctx, c.Kill)
	defer stop()
	defer c.output.Close()
	line, err := bufio.NewReader(c.output).ReadBytes('\n')
	if err != nil {
		return nil, c.Failed(fmt.Errorf("ended before it was ready: %w", err))
	}
	return line, nil
}

// PID of the child.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Stop asks the child to end, kills it after the grace period, and returns how it ended.
func (c *Child) Stop(grace time.Duration) error {
	_ = c.cmd.Process.Signal(syscall.SIGCONT) // should it have been paused
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended by itself
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.Kill()
		return fmt.Errorf("%s: did not end within %v", c.Name, grace)
	}
	if c.err != nil {
		return c.Failed(c.err)
	}
	return nil
}

// Kill ends the child at once and returns when it is gone.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Pause stops the child as it stands (SIGSTOP); Continue lets it run again.
func (c *Child) Pause() error { return c.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets a paused child run again.
func (c *Child) Continue() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// Failed adds the end of the child's log to err.
func (c *Child) Failed(err error) error {
	text, _ := os.ReadFile(c.Log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	tail := bytes.Join(lines[max(0, len(lines)-15):], []byte("\n"))
	return fmt.Errorf("%s: %w\n%s", c.Name, err, tail[max(0, len(tail)-4000):])
}
