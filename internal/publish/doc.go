// Package publish hands events to a bus and takes them for done once the bus has acknowledged them. A [Pump] moves
// deltas from the queue through an encoder to a [Publisher]; package nats publishes to JetStream, package kafka to topics, package http to a
// receiver of CloudEvents, package stdout to a stream of bytes.
//
// # Invariants
//
//   - Publish returns nil only after the bus has acknowledged the event. Nothing is dropped: what cannot be published for
//     now (the bus is away, slow or full) waits in its worker, and its slot in the queue, with all later deltas of its
//     object, waits with it. What is too large gives up its patch, the object before, or both objects, once the whole is in a
//     claim store. What is refused for good, or cannot be made, goes to the dead letters, and a gap in its place to the
//     bus; with no dead letters to be had the pump ends with an error.
//   - Order per object: the queue hands out no second delta of an object before Done of the first, and Publish does not
//     return before an acknowledgement. So at most one unacknowledged record per object is on its way, and no retry can
//     overtake anything.
//   - At least once. An event that is published again carries the same id.
//   - A call whose ctx ends returns within moments, even if the server has stopped reading.
//
// # Goroutines
//
// Pump.Run: its workers, and one for each event that is parked. All have ended when
// Run returns.
//
// # What it never does
//
// It never coalesces or skips; it never logs a body or a secret.
package publish
