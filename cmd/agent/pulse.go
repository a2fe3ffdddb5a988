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
// them. Time in which the process was stopped, between two beats, does not count.
type pulse struct {
	log   *slog.Logger
	beat  func() // takes the locks
	began time.Time
	in    atomic.Int64 // since when a beat is under way, in nanoseconds since began; 0: none is
	once  sync.Once
}

func newPulse(log *slog.Logger, beat func()) *pulse {
	return &pulse{log: log, beat: beat, began: time.Now()}
}

// watch feels the pulse until ctx ends. It does not return while a beat hangs.
func (p *pulse) watch(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.in.Store(max(1, int64(time.Since(p.began))))
		p.beat()
		p.in.Store(0)
	}
}

// alive is nil unless a beat hangs.
func (p *pulse) alive() error {
	in := p.in.Load()
	if in == 0 {
		return nil
	}
	hangs := time.Since(p.began) - time.Duration(in)
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
