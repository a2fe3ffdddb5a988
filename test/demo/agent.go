package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/process"
)

// captured is the message that the agent logs when all existing objects are on the bus.
const captured = "first snapshot complete, waiting for changes"

// timeout limits the wait for that message. A cluster of 100,000 objects takes seconds.
const timeout = 3 * time.Minute

// agent is `kubecdc run` with an embedded JetStream. Its log goes to a file; its warnings also go
// to the screen.
type agent struct {
	screen *screen
	log    string // file
	data   string // directory

	child *process.Child
	http  string // URL of the agent's HTTP server
}

// start returns when the agent watches: later changes are published as changes.
func (a *agent) start(ctx context.Context, binary, kubeconfig, kubecontext string, readers *errgroup.Group) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close() // the child has its own copy
	argv := []string{binary, "run", "--data-dir", a.data, "--kubeconfig", kubeconfig}
	if kubecontext != "" {
		argv = append(argv, "--context", kubecontext)
	}
	a.child, err = process.Start(process.Spec{
		// its socket ends with the demo
		Name:   "kubecdc run",
		Argv:   argv,
		Log:    a.log,
		Stderr: w,
		Env:    []string{"XDG_RUNTIME_DIR=" + filepath.Dir(a.data)},
	})
	if err != nil {
		r.Close()
		return err
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	ready := make(chan struct{})
	readers.Go(func() error {
		defer r.Close()
		return a.follow(r, sync.OnceFunc(func() { close(ready) }))
	})
	select {
	case <-ready:
		err = a.findServer()
	case <-a.child.Done():
		return a.child.Failed(errEnded)
	case <-late.C:
		err = a.child.Failed(fmt.Errorf("has not logged %q within %v", captured, timeout))
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(err, a.child.Stop(grace))
	}
	return nil
}

// follow keeps the agent's log, which is JSON lines because standard error is not a terminal. It
// calls ready when the agent watches.
func (a *agent) follow(r io.Reader, ready func()) error {
	file, err := os.OpenFile(a.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if _, err := file.Write(line); err != nil {
			return err
		}
		var entry struct {
			Level           slog.Level
			Msg, Err, Error string
		}
		switch {
		case json.Unmarshal(line, &entry) != nil: // an empty line, or the final error, which untilEnd reports
		case entry.Level >= slog.LevelWarn:
			a.screen.printf("  kubecdc run: %s: %s\n", entry.Msg, entry.Err+entry.Error)
		case entry.Msg == captured:
			ready()
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the agent's log: %w", err)
		}
	}
}

// findServer reads the URL of the HTTP server that the agent wrote to its data directory.
func (a *agent) findServer() error {
	path := filepath.Join(a.data, "bus.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var written struct{ Agent string }
	if err := json.Unmarshal(text, &written); err != nil || written.Agent == "" {
		return fmt.Errorf("%s lacks the URL of the agent", path) // not its text, which has a token
	}
	a.http = written.Agent
	return nil
}
