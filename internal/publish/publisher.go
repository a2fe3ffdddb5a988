package publish

import (
	"context"
	"errors"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// Publisher hands events to a bus.
//
// Publish returns nil only after the bus has acknowledged ev. What may pass, a bus that is away, slow or full, it
// retries by itself, with backoff, until ctx ends; then it returns the cause of ctx, and whether the bus has the event
// is not known: publishing it again is safe, a second copy carries the same id. Earlier it returns only an error that
// wraps ErrRefused (the bus refuses this event for good), or any other error once the bus is gone for good.
//
// Safe for concurrent use; callers never have two calls in flight for one key, which is what keeps an object's events
// in order whatever is retried. ev and its Body are read until Publish returns, and not kept.
type Publisher interface {
	Publish(ctx context.Context, ev *encode.Event) error
}

var (
	// ErrRefused says that the bus takes this event neither now nor later, as it is: it is too large, for instance.
	ErrRefused = errors.New("the bus refuses the event")

	// ErrClosed says that the publisher's Run has ended.
	ErrClosed = errors.New("publisher closed")

	// ErrStream says that the bus would lose events silently, or could never take them, as it is configured.
	ErrStream = errors.New("stream refused")
)
