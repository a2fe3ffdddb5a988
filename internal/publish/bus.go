package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// Bus publishes events to one bus.
//
// Publish takes e over and returns at once; it neither waits for the bus nor for memory. Later, from any goroutine, the bus calls
// e.Done, exactly once. Until then e and its buffers belong to the bus. With Done the bus promises that it will never write this event
// again. Only copies of what the bus already has may still arrive: the bus sends an event of unknown outcome again byte for byte, and does not
// hand it back.
//
// Publish may be called before Run and while the bus is away. The bus sends such events after it is back. The callers bound them, in number
// and in bytes, and never have two events of one key in flight. That keeps an object's events in order, whatever is retried.
//
// Done(nil) says that the bus has acknowledged the event. Its errors wrap one of these:
//
//   - [RetryError]: the bus has answered that it does not take the event now, or the event must be sent alone. The caller publishes
//     it again after a backoff.
//   - [ErrRefused]: the bus will never take this event; [ErrTooLarge], which wraps it: it would take a smaller one.
//   - [ErrFenced]: this process may not write to the bus any more.
//   - [ErrClosed]: Run has ended. All events that are in flight then end with it, and all that come later.
//
// Errors say why, and hold neither secrets nor what is in the event's body: the dead letter shows them.
//
// Run connects and publishes until ctx ends, then ends every event in flight, and returns nil. A bus that is away is no error: Run
// logs it and retries. It returns an error that wraps [ErrStream] if the bus would lose events silently as it is configured. It returns
// another error if it cannot read the files of its configuration at the start. It is called once.
//
// Ready returns nil while the bus is connected and takes events. Its error says what prevents that, and what to do about it.
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
	// Alone: an earlier attempt has ended with RetryError.Alone. The bus sends the event on a connection, or in a request or batch, that carries
	// nothing else. No other event with Alone is in flight meanwhile.
	Alone bool

	done    func(error)
	retried func(reason string)
}

// NewEvent returns an event that calls done with its outcome. It calls retried, unless that is nil, for each failed attempt that the bus
// makes again by itself.
func NewEvent(ev *encode.Event, done func(error), retried func(reason string)) *Event {
	return &Event{Event: ev, done: done, retried: retried}
}

// Done ends the event. See [Bus] for err.
func (e *Event) Done(err error) { e.done(err) }

// Retried says that an attempt failed which the bus makes again by itself. The reason is one of the Reason constants.
func (e *Event) Retried(reason string) {
	if e.retried != nil {
		e.retried(reason)
	}
}

// RetryError says that the bus does not take an event now.
type RetryError struct {
	Reason string        // one of the Reason constants
	After  time.Duration // wait at least so long, as the bus asks; 0: it does not ask
	// Alone: the event itself may be the cause, because connections broke while it was on its way, or because it alone is denied. It is to be sent
	// alone and spaced out, so that it delays no other event.
	Alone bool
	Err   error // what the bus said
}

// Error implements error.
func (e *RetryError) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

// Unwrap returns what the bus said.
func (e *RetryError) Unwrap() error { return e.Err }

// InFlight is how many events are in flight at a time.
const InFlight = 512

// StreamEvent is what the last stream event of a resource on the bus says: how far an agent has come, whatever its checkpoint holds.
type StreamEvent struct {
	Scope           string
	ResourceVersion uint64 // up to which it speaks; of a gap: its end, or its beginning if the end is not known
	History         uint32
	At              time.Time
}
