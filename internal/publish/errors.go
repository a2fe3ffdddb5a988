package publish

import (
	"errors"
	"fmt"
	"net/url"
)

var (
	// ErrRefused says that the bus takes this event neither now nor later, as it is: it is too large, for instance.
	ErrRefused = errors.New("the bus refuses the event")

	// ErrTooLarge is ErrRefused of an event that the bus would take if it were smaller.
	ErrTooLarge = fmt.Errorf("%w: it is too large", ErrRefused)

	// ErrClosed says that the Run of the bus has ended.
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
