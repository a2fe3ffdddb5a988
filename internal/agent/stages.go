package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// ErrGrace means that the drain took longer than the grace period.
var ErrGrace = errors.New("the grace period is over")

// UntilEnded is a stage without work: it returns when ctx ends.
func UntilEnded(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Beside returns a function that runs a and b concurrently. An error of one ends the other.
func Beside(a, b func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return a(ctx) })
		g.Go(func() error { return b(ctx) })
		return g.Wait()
	}
}

// Stages run concurrently. They are listed in the order in which a delta passes through them.
type Stages struct {
	Observe    func(context.Context) error
	Waiting    func() int                  // number of events in the queue
	Drained    func(context.Context) error // waits until the queue is empty
	Finish     func(context.Context) error // publishes progress after the queue is drained
	CloseQueue func()
	Draining   func(context.Context)       // shows the progress of the drain until its context ends; may be nil
	Dispatch   func(context.Context) error // returns when the queue is closed and empty
	Save       func(context.Context) error // saves the checkpoint until its context ends, and then once more
	Bus        func(context.Context) error
}

// RunStages runs the stages until ctx ends. Then it ends one after the other:
//   - the watches
//   - the queue, after it is drained and progress is published, or after grace
//   - the checkpoint, which is saved once more
//   - the connection to the bus
//
// A stage that fails ends all of them.
func RunStages(ctx context.Context, grace time.Duration, s Stages, log *slog.Logger) error {
	g, all := errgroup.WithContext(context.WithoutCancel(ctx))
	observing, stopObserving := context.WithCancel(all)
	defer stopObserving()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), leader.ErrLost) {
			log.Error("another agent leads, stopping the watches: after a restart this one is a standby")
		} else {
			log.Info("stopping the watches; a second signal ends the process at once")
		}
		stopObserving()
	})()
	dispatching, stopDispatching := context.WithCancelCause(all)
	defer stopDispatching(nil)
	saving, stopSaving := context.WithCancel(all)
	defer stopSaving()
	connected, disconnect := context.WithCancel(all)
	defer disconnect()

	var drained atomic.Bool
	g.Go(func() error {
		err := s.Observe(observing)
		log.Info("watches stopped, draining the queue", "events", s.Waiting(), "grace", grace)
		over := time.AfterFunc(grace, func() { stopDispatching(ErrGrace) })
		defer over.Stop()
		if s.Draining != nil {
			g.Go(func() error {
				s.Draining(saving)
				return nil
			})
		}
		if s.Drained(dispatching) == nil {
			drained.Store(true)
			if err := s.Finish(dispatching); err != nil && all.Err() == nil {
				log.Warn("all changes are on the bus, but not the last progress events", "err", err)
			}
		}
		s.CloseQueue()
		<-saving.Done() // after the drain, or a failure
		return err
	})
	g.Go(func() error {
		defer stopSaving()
		err := s.Dispatch(dispatching)
		switch {
		case errors.Is(err, publish.ErrClosed):
			return nil // the bus has failed, and its own error says why
		case errors.Is(err, ErrGrace) && drained.Load():
			return nil // only progress events are missing, no change
		}
		return err
	})
	g.Go(func() error {
		defer disconnect()
		return s.Save(saving)
	})
	g.Go(func() error { return s.Bus(connected) })
	err := g.Wait()
	switch {
	case errors.Is(err, ErrGrace):
		return fmt.Errorf("%w: the bus has not acknowledged %d events within %s", ErrGrace, s.Waiting(), grace)
	case err == nil:
		log.Info("drained, exiting")
	}
	return err
}
