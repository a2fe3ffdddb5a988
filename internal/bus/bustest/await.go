package bustest

import (
	"context"
	"errors"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Publisher publishes an event and waits for its end. Publish returns what ends the event, or the
// cause of ctx. It publishes the event again as long as the bus hands it back with a
// publish.RetryError.
type Publisher interface {
	Publish(ctx context.Context, ev *encode.Event) error
}

// Await returns a Publisher for b, or for its dead letters.
func Await(b publish.Bus, deadLetters bool) Publisher { return awaiting{b, deadLetters} }

type awaiting struct {
	bus         publish.Bus
	deadLetters bool
}

// Publish implements Publisher.
func (a awaiting) Publish(ctx context.Context, ev *encode.Event) error {
	alone := false
	for failures := 1; ; failures++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done := make(chan error, 1)
		e := publish.NewEvent(ev, func(err error) { done <- err }, nil)
		e.DeadLetter, e.Alone = a.deadLetters, alone
		a.bus.Publish(e)
		var err error
		select {
		case err = <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		again := new(publish.RetryError)
		if !errors.As(err, &again) {
			return err
		}
		alone = again.Alone
		if err := pause.For(ctx, max(again.After, publish.BusyBackoff().Delay(failures))); err != nil {
			return err
		}
	}
}
