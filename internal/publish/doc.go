// Package publish hands events to a bus and takes them for done once the bus has acknowledged them. A [Pump] moves
// deltas from the queue through an encoder to a [Publisher]; [NATS] publishes to JetStream, [Stdout] to a stream of
// bytes.
//
// # Invariants
//
//   - Publish returns nil only after the bus has acknowledged the event. Nothing is dropped: what cannot be published
//     waits in its worker (the bus is away, slow or full) or parked (the event is refused, or cannot be made), and its
//     slot in the queue, with all later deltas of its object, waits with it.
//   - Order per object: the queue hands out no second delta of an object before Done of the first, and Publish does not
//     return before an acknowledgement. So at most one unacknowledged record per object is on its way, and no retry can
//     overtake anything.
//   - At least once. An event that is published again carries the same Nats-Msg-Id, so within the stream's duplicate
//     window there is one record of it. A copy that was stuck in a broken connection for longer than that is stored late;
//     consumers know it by its id and its sequence.
//   - A stream that would lose records silently is refused at every connect, and no stream is ever changed.
//   - A call whose ctx ends returns within moments, even if the server has stopped reading.
//
// # How NATS publishes
//
// One connection, one subscription to <inbox>.*, and a table of waiters, of which each call of Publish holds one. The
// message carries a reply subject that names waiter, call and attempt; the subscription's callback finds the waiter and
// passes on what JetStream answered. An acknowledgement counts for whichever attempt of the current call it answers (all
// carry the same event), an error only for the latest, and what answers an older call is ignored. No lock is shared
// between calls but that of nats.go's connection.
//
// When the connection breaks, all waiters fail, and wait at a gate that opens when the stream has been checked on the
// next connection; then they publish again. nats.go keeps nothing meanwhile (ReconnectBufSize -1).
//
// nats.go dials, shakes hands and writes under the connection's lock. A server that does not read would thus hold every
// call for as long as a write may take (10 s). So the dialer keeps a handle on the socket: a call whose ctx has ended
// and that is still inside nats.go makes the sweeper break the connection, and so does the end of Run.
//
// # What the bus remembers
//
// [NATS.Heard] is the last stream event of a resource that the stream has. It outlives what the agent remembers: an agent
// whose checkpoint is lost, or was restored together with etcd, learns from it how far history had come.
//
// # Goroutines
//
// NATS.Run: itself, a sweeper (overdue acknowledgements, stuck calls; every 100 ms while calls are on their way), one
// that breaks the connection at the end, one that connects and checks the stream, and nats.go's own (reader, flusher,
// callbacks, the subscription's). Pump.Run: its workers, and one for what is parked. All have ended when Run returns.
//
// # What it never does
//
// It never encodes, coalesces or skips; it never logs a body or a secret.
package publish
