package publish

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// Publisher hands events to a bus.
//
// Publish returns nil only after the bus has acknowledged ev. What may pass, a bus that is away, slow or full, it
// retries by itself, with backoff, until ctx ends; then it returns the cause of ctx, and whether the bus has the event
// is not known: publishing it again is safe, a second copy carries the same id. Earlier it returns only an error that
// wraps ErrRefused (the bus refuses this event for good; ErrTooLarge, which wraps it, where a smaller one would do), one that
// wraps ErrFenced, or any other error once the bus is gone for good. Errors say why, and hold neither secrets nor what is in the event's body: the
// dead letter shows them.
//
// Safe for concurrent use; callers never have two calls in flight for one key, which is what keeps an object's events
// in order whatever is retried. ev and its Body are read until Publish returns, and not kept.
type Publisher interface {
	Publish(ctx context.Context, ev *encode.Event) error
}

var (
	// ErrRefused says that the bus takes this event neither now nor later, as it is: it is too large, for instance.
	ErrRefused = errors.New("the bus refuses the event")

	// ErrTooLarge is ErrRefused of an event that the bus would take if it were smaller.
	ErrTooLarge = fmt.Errorf("%w: it is too large", ErrRefused)

	// ErrClosed says that the publisher's Run has ended.
	ErrClosed = errors.New("publisher closed")

	// ErrStream says that the bus would lose events silently, or could never take them, as it is configured.
	ErrStream = errors.New("stream refused")
)

// WithoutURL takes the URL, which may hold a password, out of an error of net/url.
func WithoutURL(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}
