package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/process"
)

// exitInexact is the code of a command whose answer is not exact, with --exact.
const exitInexact = 3

// pastRun is the cost of a question that was asked once.
type pastRun struct {
	seconds float64
	cpu     float64 // s, of the command and of the server
	answer  int64   // bytes
	peak    int64   // resident memory, bytes
	exact   bool
	shown   bool // progress was shown at the terminal
	sum     [sha256.Size]byte
}

// runQuestion runs a command, whose standard error may be a terminal. The kernel's peak is read
// until the command ends, so it may lack the last milliseconds.
func runQuestion(ctx context.Context, argv []string, atTerminal bool) (r *pastRun, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out counter
	sum := sha256.New()
	cmd.Stdout = io.MultiWriter(&out, sum)
	var log bytes.Buffer
	cmd.Stderr = &log
	var g errgroup.Group
	if atTerminal {
		person, terminal, err := pty.Open()
		if err != nil {
			return nil, fmt.Errorf("terminal: %w", err)
		}
		cmd.Stderr, cmd.Env = terminal, append(os.Environ(), "TERM=xterm")
		g.Go(func() error {
			_, _ = io.Copy(&log, person) // ends with an error when the other end is closed
			return person.Close()
		})
		defer func() {
			err = errors.Join(err, terminal.Close(), g.Wait())
			if r != nil {
				r.shown = bytes.Contains(log.Bytes(), []byte("reading the record"))
			}
		}()
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	g.Go(func() error {
		ended <- cmd.Wait()
		return nil
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	r = &pastRun{}
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-tick.C:
			if m, err := process.ReadMemory(cmd.Process.Pid); err == nil {
				r.peak = max(r.peak, m.Peak)
			}
		}
	}
	r.seconds = time.Since(begin).Seconds()
	r.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	r.answer, r.exact = int64(out), err == nil
	sum.Sum(r.sum[:0])
	if err != nil && cmd.ProcessState.ExitCode() != exitInexact {
		return r, fmt.Errorf("%s %s: %w\n%s", filepath.Base(argv[0]), strings.Join(argv[1:], " "), err, log.Bytes())
	}
	return r, nil
}

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
