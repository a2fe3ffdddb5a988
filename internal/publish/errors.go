package publish

import (
	"errors"
	"fmt"
	"net/url"
)

var (
	// ErrRefused means that the bus will never accept this event in its present form, for example because of its size.
	ErrRefused = errors.New("the bus rejects the event")

	// ErrTooLarge is ErrRefused for an event that the bus would accept if it were smaller.
	ErrTooLarge = fmt.Errorf("%w: it is too large", ErrRefused)

	// ErrClosed means that Run of the bus has ended.
	ErrClosed = errors.New("publisher closed")

	// ErrStream means that the bus, as configured, would lose events silently or could never accept them.
	ErrStream = errors.New("stream refused")
)

// WithoutURL removes the URL, which may contain a password, from an error of net/url.
func WithoutURL(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}
