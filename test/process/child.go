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

// Spec describes a process to start.
type Spec struct {
	Name string
	Argv []string
	Env  []string // added to the environment
	Dir  string   // the working directory; "": the caller's
	// Log is the file for standard error and, unless Announces is set, for standard output.
	Log string
	// Announces is whether the process prints exactly one line, when it is ready.
	Announces bool
	// Stdout and Stderr replace Log if they are not nil. The child has its own copy of them.
	Stdout, Stderr *os.File
}

// Child is a running process.
type Child struct {
	Spec

	cmd    *exec.Cmd
	output *os.File      // standard output if Announces is set, otherwise nil
	done   chan struct{} // closed when the process has ended
	err    error         // the error of Wait; may be read after done is closed
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

// Ready waits for the line that the child prints when it is ready, and returns it.
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

// PID returns the process id of the child.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Stop sends SIGTERM, kills the child after the grace period, and returns the child's error.
func (c *Child) Stop(grace time.Duration) error {
	_ = c.cmd.Process.Signal(syscall.SIGCONT) // it may be paused
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

// Kill kills the child and returns after it has ended.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Pause pauses the child (SIGSTOP) until Continue.
func (c *Child) Pause() error { return c.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue resumes a paused child (SIGCONT).
func (c *Child) Continue() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// Failed adds the end of the child's log to err.
func (c *Child) Failed(err error) error {
	text, _ := os.ReadFile(c.Log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	tail := bytes.Join(lines[max(0, len(lines)-15):], []byte("\n"))
	return fmt.Errorf("%s: %w\n%s", c.Name, err, tail[max(0, len(tail)-4000):])
}
