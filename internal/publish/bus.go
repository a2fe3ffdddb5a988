package publish

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// Bus publishes events to one bus.
//
// Publish takes ownership of e and returns at once; it waits neither for the bus nor for memory.
// Later, from any goroutine, the bus calls e.Done exactly once. Until then e and its buffers belong
// to the bus. After Done the bus never writes this event again. Only copies of stored records may
// still arrive: the bus resends an event of unknown outcome byte for byte. It hands it back only
// with RetryError.Alone; then a copy may be stored.
//
// Publish may be called before Run and while the bus is away; the bus sends such events when it is
// back. The callers bound their number and bytes, and never have two events of one key in flight.
// So an object's events stay in order, whatever is retried.
//
// Done(nil) says that the bus has acknowledged the event. Its errors wrap one of these:
//
//   - [RetryError]: the bus rejects the event for now, or the event must be sent alone. The caller
//     publishes it again after a backoff.
//   - [ErrRefused]: the bus will never accept this event; [ErrTooLarge], which wraps it: it would
//     accept a smaller one.
//   - [ErrFenced]: this process may not write to the bus any more.
//   - [ErrClosed]: Run has ended. It ends all events then in flight, and all later ones.
//
// Errors contain neither secrets nor parts of the event's body, because the dead letter shows them.
//
// Run connects and publishes until ctx ends, then ends every event in flight, and returns nil. A
// bus that is away is no error: Run logs it and retries. Its error wraps [ErrStream] if the
// configured bus would lose events silently. It returns another error if it cannot read the files
// of its configuration at the start. It is called once.
//
// Ready returns nil while the bus is connected and accepts events. Its error names the cause and
// the fix.
//
// All methods are safe for concurrent use.
type Bus interface {
	Publish(e *Event)
	Run(ctx context.Context) error
	Ready() error
}

// Event is an event on its way to a bus.
type Event struct {
	*encode.Event

	// DeadLetter: the event goes to the dead letters of the bus.
	DeadLetter bool
	// Alone: an earlier attempt ended with RetryError.Alone. The bus sends the event on a
	// connection, or in a request or batch, that carries nothing else. No other event with Alone is
	// in flight meanwhile.
	Alone bool

	done    func(error)
	retried func(reason string)
}

// NewEvent returns an event that calls done with its outcome, and retried, unless nil, for each
// failed attempt that the bus itself repeats.
func NewEvent(ev *encode.Event, done func(error), retried func(reason string)) *Event {
	return &Event{Event: ev, done: done, retried: retried}
}

// Done ends the event. See [Bus] for err.
func (e *Event) Done(err error) { e.done(err) }

// Retried reports a failed attempt that the bus itself repeats. The reason is one of the Reason
// constants.
func (e *Event) Retried(reason string) {
	if e.retried != nil {
		e.retried(reason)
	}
}

// RetryError means that the bus rejects an event for now.
type RetryError struct {
	Reason string        // one of the Reason constants
	After  time.Duration // the minimum wait that the bus requests; 0: none
	// Alone: the event itself may be the cause, because connections broke while it was in flight,
	// or because only it is denied. The caller must send it alone and with pauses, so that it
	// delays no other event.
	Alone bool
	Err   error // the error from the bus
}

// Error implements error.
func (e *RetryError) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

// Unwrap returns the error from the bus.
func (e *RetryError) Unwrap() error { return e.Err }

// InFlight is the maximum number of events in flight.
const InFlight = 512

// StreamEvent is the content of a resource's last stream event on the bus: the position of an
// agent, whatever its checkpoint says.
type StreamEvent struct {
	Scope           string
	ResourceVersion uint64 // the position that it covers; for a gap: its end, or its start if the end is unknown
	History         uint32
	At              time.Time
}

// ObjectEvent identifies the version of a resource's newest object event on the bus.
type ObjectEvent struct {
	Namespace, Name, UID string
	ResourceVersion      uint64
	History              uint32
	Gone                 bool   // the version is the deletion
	ChangedBy            []byte // JSON of its changedBy; nil: none
}

var (
	// ErrRefused means that the bus will never accept this event in its present form, for example
	// because of its size.
	ErrRefused = errors.New("the bus rejects the event")

	// ErrTooLarge is ErrRefused for an event that the bus would accept if it were smaller.
	ErrTooLarge = fmt.Errorf("%w: it is too large", ErrRefused)

	// ErrClosed means that Run of the bus has ended.
	ErrClosed = errors.New("publisher closed")

	// ErrStream means that the bus, as configured, would lose events silently or could never accept
	// them.
	ErrStream = errors.New("stream refused")
)

// WithoutURL removes the URL, which may contain a password, from an error of net/url.
func WithoutURL(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}
