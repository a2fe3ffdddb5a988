package admin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

const (
	// watchdogInterval is the time between two attempts to acquire the locks.
	watchdogInterval = 5 * time.Second
	// hangsAfter is the time limit of one attempt. The locks are never held for longer than an
	// instant.
	hangsAfter = time.Minute
)

// watchdog detects a deadlock for /healthz, because only a restart resolves a deadlock. An agent
// that waits for an unreachable bus or API server does not benefit from a restart. A deadlock among
// the stages involves the locks of the queue or of the informers, so the watchdog acquires them at
// intervals. It measures an attempt in ticks of this process, not by a clock: no ticks pass while
// the process is stopped or has no processor.
type watchdog struct {
	log     *slog.Logger
	acquire func()       // acquires and releases the locks
	missed  atomic.Int64 // ticks since the current attempt began
	once    sync.Once
}

// run acquires the locks at intervals until ctx ends. It does not return while an attempt hangs.
func (w *watchdog) run(ctx context.Context) {
	var g errgroup.Group
	defer func() { _ = g.Wait() }() // an attempt has no error
	tick := time.NewTicker(watchdogInterval)
	defer tick.Stop()
	var over chan struct{} // closed when the current attempt ends; nil without one
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			over = nil
			w.missed.Store(0)
		case <-tick.C:
			if over != nil {
				w.missed.Add(1)
				continue
			}
			done := make(chan struct{})
			over = done
			g.Go(func() error {
				defer close(done)
				w.acquire()
				return nil
			})
		}
	}
}

// checkAlive returns an error if an attempt hangs.
func (w *watchdog) checkAlive() error {
	hangs := time.Duration(w.missed.Load()) * watchdogInterval
	if hangs < hangsAfter {
		return nil
	}
	w.once.Do(func() { // a restart loses the goroutines
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a buffer never fails
		w.log.Error("the agent hangs, so /healthz fails to get it restarted: please report this, with the goroutines",
			"hangs_for", hangs, "goroutines", b.String())
	})
	return fmt.Errorf("the agent hangs: it could not acquire its locks for %s; its goroutines are in the log",
		terminal.Duration(hangs))
}
