package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// errGrace ends a drain that takes too long.
var errGrace = errors.New("the grace period is over")

// untilEnded is a stage that has nothing to do.
func untilEnded(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// beside runs a and b at a time. When one fails the other is ended.
func beside(a, b func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return a(ctx) })
		g.Go(func() error { return b(ctx) })
		return g.Wait()
	}
}

// stages are what runs at a time, in the order in which a delta passes them.
type stages struct {
	observe    func(context.Context) error
	waiting    func() int                  // how much is in the queue
	drained    func(context.Context) error // waits until nothing is
	finish     func(context.Context) error // tells the bus how far all has come, once it is drained
	closeQueue func()
	draining   func(context.Context)       // shows how far the drain is, until its context ends; may be nil
	dispatch   func(context.Context) error // ends when the queue is closed and empty
	remember   func(context.Context) error // saves the checkpoint until its context ends, and then for the last time
	bus        func(context.Context) error
}

// runStages runs until ctx ends; then it ends the stages one after the other: the watches; the queue, once it is drained and
// the bus has been told how far all has come, or grace is over; the checkpoint, which remembers it; the connection to the
// bus. A stage that fails ends all of them.
func runStages(ctx context.Context, grace time.Duration, s stages, log *slog.Logger) error {
	g, all := errgroup.WithContext(context.WithoutCancel(ctx))
	observing, stopObserving := context.WithCancel(all)
	defer stopObserving()
	defer context.AfterFunc(ctx, func() {
		if lost(ctx) {
			log.Error("another agent leads, ending the watches: started again, this one stands by")
		} else {
			log.Info("told to stop, ending the watches; told again, the process ends at once")
		}
		stopObserving()
	})()
	dispatching, stopDispatching := context.WithCancelCause(all)
	defer stopDispatching(nil)
	remembering, stopRemembering := context.WithCancel(all)
	defer stopRemembering()
	connected, disconnect := context.WithCancel(all)
	defer disconnect()

	var drained atomic.Bool
	g.Go(func() error {
		err := s.observe(observing)
		log.Info("watches ended, draining the queue", "events", s.waiting(), "grace", grace)
		over := time.AfterFunc(grace, func() { stopDispatching(errGrace) })
		defer over.Stop()
		if s.draining != nil {
			g.Go(func() error {
				s.draining(remembering)
				return nil
			})
		}
		if s.drained(dispatching) == nil {
			drained.Store(true)
			if err := s.finish(dispatching); err != nil && all.Err() == nil {
				log.Warn("all changes are on the bus, but not the progress events that say so", "err", err)
			}
		}
		s.closeQueue()
		<-remembering.Done() // drained, or failed
		return err
	})
	g.Go(func() error {
		defer stopRemembering()
		err := s.dispatch(dispatching)
		switch {
		case errors.Is(err, publish.ErrClosed):
			return nil // the bus has failed, and its own error says why
		case errors.Is(err, errGrace) && drained.Load():
			return nil // what waits are words about progress: no change is missing
		}
		return err
	})
	g.Go(func() error {
		defer disconnect()
		return s.remember(remembering)
	})
	g.Go(func() error { return s.bus(connected) })
	err := g.Wait()
	switch {
	case errors.Is(err, errGrace):
		return fmt.Errorf("%w: within %s the bus has not taken all, %d events are not on it", errGrace, grace, s.waiting())
	case err == nil:
		log.Info("drained, kubecdc ends")
	}
	return err
}
