// Package publish hands events to a bus, and acknowledges their deltas once the bus has acknowledged the events. A [Dispatcher] moves
// deltas from the queue through an encoder to a [Bus]. The drivers are packages: nats publishes to JetStream, kafka to topics, http to
// a receiver of CloudEvents, stdout to a stream of bytes. Package claim stores large events.
//
// # Invariants
//
//   - A delta is acknowledged only after the bus has acknowledged its event, or the dead letters have it and the bus has the gap in its
//     place. Nothing is dropped: an event that the bus does not take now keeps its key and its slot in the queue, and
//     so do all later deltas of its object.
//   - Order per object: the queue hands out no second delta of an object before Done of the first. So at most one unacknowledged record per
//     object is in flight, and no retry can overtake another record.
//   - Stream events of a scope, and the gaps that replace dead letters in it, are in flight one at a time.
//   - At least once. An event that is published again carries the same id.
//   - Memory: only the source bounds the events in flight, in number and in bytes. No encoder waits for memory.
//   - An event that is too large gives up its patch, the object before, or both objects, after the whole is in a claim store. An event that the
//     bus refuses for good, or that cannot be made, goes to the dead letters. If no dead letters take it, Run ends with an error.
//   - An event that may itself break connections, or that alone is denied, is isolated: sent alone, one such event at a time, with growing
//     pauses. Package publish never decides that it is refused; an operator may (DeadLetter).
//
// # Goroutines
//
// Dispatcher.Run: one encoder for each processor; complete, which ends events and resumes those whose backoff is over; work, which encodes
// events once more; and one for each event that is on its way to a claim store. All have ended when Run returns. [Bus] says what a driver may run.
//
// # What it never does
//
// It never coalesces or skips; it never logs a body or a secret.
package publish
