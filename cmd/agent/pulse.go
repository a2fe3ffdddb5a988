package main

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
)

const (
	// beatEvery is how often the pulse is felt.
	beatEvery = 5 * time.Second
	// hangsAfter is how long one beat may take: it only takes locks that nobody holds for longer than an instant.
	hangsAfter = time.Minute
)

// pulse tells if the agent is alive, for /healthz: a restart must help, and nothing else must be taken for it. A bus or an
// API server that is away is waited for, in whatever state the agent is then, and no restart brings it back. What only a
// restart cures is a deadlock, and one among the stages ends at the locks of the queue and of the informers: a beat takes
// them. How long it takes is counted in ticks that this process has seen, and not by a clock: time in which the process was
// stopped, or had no processor, is no sign of a deadlock.
type pulse struct {
	log    *slog.Logger
	beat   func()       // takes the locks
	missed atomic.Int64 // ticks since the beat that is under way began
	once   sync.Once
}

func newPulse(log *slog.Logger, beat func()) *pulse { return &pulse{log: log, beat: beat} }

// watch feels the pulse until ctx ends. It does not return while a beat hangs.
func (p *pulse) watch(ctx context.Context) {
	var g errgroup.Group
	defer func() { _ = g.Wait() }() // a beat has no error
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	var over chan struct{} // closed when the beat is; nil: none is under way
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			over = nil
			p.missed.Store(0)
		case <-tick.C:
			if over != nil {
				p.missed.Add(1)
				continue
			}
			done := make(chan struct{})
			over = done
			g.Go(func() error {
				defer close(done)
				p.beat()
				return nil
			})
		}
	}
}

// alive is nil unless a beat hangs.
func (p *pulse) alive() error {
	hangs := time.Duration(p.missed.Load()) * beatEvery
	if hangs < hangsAfter {
		return nil
	}
	p.once.Do(func() { // the restart takes what could be looked at
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a buffer takes it
		p.log.Error("the agent hangs, /healthz asks for its restart: please report this, with the goroutines", "hangs_for", hangs, "goroutines", b.String())
	})
	return fmt.Errorf("the agent hangs: its locks have not been had for %s; its goroutines are in the log", span(hangs))
}
