// Package publish sends events to a bus, and acknowledges their deltas after the bus has
// acknowledged the events. A [Dispatcher] moves deltas from the queue through an encoder to a
// [Bus]. The drivers are packages below internal/bus: nats publishes to JetStream, kafka to topics,
// http to a receiver of CloudEvents, stdout to a stream of bytes; package claim stores large
// events.
//
// # Invariants
//
//   - A delta is acknowledged only after the bus has acknowledged its event, or the dead letters
//     have the event and the bus has the gap. Nothing is dropped: an event that the bus rejects for
//     now keeps its key and its slot in the queue, and so do all later deltas of its object.
//   - Order per object: the queue returns no second delta of an object before Done of the first. So
//     at most one unacknowledged record per object is in flight, and no retry can overtake another
//     record.
//   - Stream events of a scope, and the gaps that replace dead letters in it, are in flight one at
//     a time.
//   - At least once. An event that is published again carries the same id.
//   - Memory: only the queue bounds the events in flight, in number and in bytes. No encoder waits
//     for memory.
//   - An event that is too large is sent without its patch, the object before, or (if a claim store
//     has the whole) both objects. An event that the bus refuses for good, or that cannot be
//     encoded, goes to the dead letters; if they reject it, Run fails.
//   - An event that may itself break connections, or that alone is denied, is isolated: sent alone,
//     one such event at a time, with growing pauses. Package publish never decides that it is
//     refused; an operator may (DeadLetter).
//
// # Goroutines
//
// Dispatcher.Run starts one encoder for each processor; completeFlights, which ends events and
// resumes those whose backoff is over; and encodeAgain, which encodes events once more. Each upload
// to a claim store has its own goroutine. All have ended when Run returns.
//
// # Exclusions
//
// The package never coalesces or skips events; it never logs a body or a secret.
package publish
