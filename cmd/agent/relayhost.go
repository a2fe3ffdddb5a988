package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
)

// After what time a relay that has ended with an error is run again. It doubles each time, and begins anew once the relay
// has run for as long as the most.
const (
	firstRelayPause = 5 * time.Second
	mostRelayPause  = 2 * time.Minute
)

// errRelayWaits is the state of a relay that has not been started.
var errRelayWaits = errors.New("not started yet: the API server has to tell the cluster's uid first")

// runner is a relay that is run once.
type runner interface {
	Run(ctx context.Context) error
	Ready() error
}

// relayHost runs relays beside the agent. None of them stops the capture: one that fails is logged, shown in /readyz, and run
// again. A nil *relayHost has no relays.
type relayHost struct {
	log    *slog.Logger
	pause  time.Duration // the first
	fence  publish.Fence // passed before each start; nil: there is no election
	relays []*hostedRelay
}

// hostedRelay is one relay and how it is.
type hostedRelay struct {
	cfg *config.Relay

	mu      sync.Mutex
	running runner // nil: it is not running
	failure error  // why not
}

// newRelayHost returns a host for the relays of the configuration, nil where there are none.
func newRelayHost(relays []config.Relay, log *slog.Logger) *relayHost {
	if len(relays) == 0 {
		return nil
	}
	h := &relayHost{log: log, pause: firstRelayPause}
	for i := range relays {
		h.relays = append(h.relays, &hostedRelay{cfg: &relays[i], failure: errRelayWaits})
	}
	return h
}

// probes are for /readyz: a relay that fails does not make the agent unready, which captures all the same.
func (h *relayHost) probes() []admin.Probe {
	if h == nil {
		return nil
	}
	var all []admin.Probe
	for _, r := range h.relays {
		all = append(all, admin.Probe{Name: "relay " + r.cfg.Name, Ready: r.ready, Aside: true})
	}
	return all
}

func (r *hostedRelay) ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		return r.failure
	}
	return r.running.Ready()
}

func (r *hostedRelay) set(running runner, failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.failure = running, failure
}

// run runs all relays until ctx ends. open makes one to be run; it is called for each run.
func (h *relayHost) run(ctx context.Context, open func(*config.Relay) (runner, error)) {
	if h == nil {
		return
	}
	var g errgroup.Group
	for _, r := range h.relays {
		g.Go(func() error {
			h.keep(ctx, r, open)
			return nil
		})
	}
	_ = g.Wait() // none of them returns an error
}

// keep runs one relay again and again until ctx ends.
func (h *relayHost) keep(ctx context.Context, r *hostedRelay, open func(*config.Relay) (runner, error)) {
	pause := h.pause
	// A leader that stood still as its relay started may take the cursor once more when another one leads, before it notices. It ends
	// then, and the cursor is taken back: once, since whoever takes it again is no leader of before.
	takesBack := h.fence != nil
	for {
		began := time.Now()
		running, err := h.open(ctx, r.cfg, open)
		if err == nil {
			r.set(running, nil)
			err = running.Run(ctx)
		}
		if ctx.Err() != nil {
			if err != nil {
				h.log.Warn("relay has not ended well: what it delivered last may be delivered again", "relay", r.cfg.Name, "err", err)
			}
			return
		}
		elsewhere := errors.Is(err, relay.ErrElsewhere)
		switch {
		case errors.Is(err, leader.ErrLost): // the agent ends, and says why
			r.set(nil, err)
			return
		case elsewhere && takesBack:
			takesBack = false
		case elsewhere: // started again, it would take the cursor back, and the two would take turns for ever
			r.set(nil, err)
			h.log.Error("relay is run elsewhere too, and ends here: run a relay of one name once", "relay", r.cfg.Name, "err", err)
			return
		case err == nil:
			err = errors.New("it ended by itself")
		}
		if time.Since(began) >= mostRelayPause {
			pause = h.pause
		}
		r.set(nil, err)
		h.log.Error("relay has failed, and is started again; records wait on the bus meanwhile", "relay", r.cfg.Name, "err", err, "after", pause)
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
		pause = min(2*pause, mostRelayPause)
	}
}

// open makes a relay, once this agent may write. Its first act is to take the cursor from whoever has it.
func (h *relayHost) open(ctx context.Context, r *config.Relay, open func(*config.Relay) (runner, error)) (runner, error) {
	if h.fence != nil {
		if err := h.fence.Pass(ctx); err != nil {
			return nil, err
		}
	}
	return open(r)
}
