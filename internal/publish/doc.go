// Package publish hands events to a bus and takes them for done once the bus has acknowledged them. A [Pump] moves
// deltas from the queue through an encoder to a [Publisher]; [NATS] publishes to JetStream, package kafka to topics, package http to a
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
// nats.go closes a connection for good where the server says something that it does not know. Run then makes another one.
//
// # An event that makes the server cut the connection
//
// A message may do that: a control line that is too long for the server, a proxy that looks into it, a defect. A call is
// suspected when it was on its way on two connections in a row that broke, without an answer in between; by then so may
// be all others. While anybody is suspected the rest waits, and suspects are sent one by one, each on a connection that
// carries nothing else and whose stream has just answered (a message that it turns down). An event is refused when its
// connection is cut within a second, before the acknowledgement, and the next one stands idle for a control period of 0.5
// to 1 s and is cut in the same way when the event is sent on it. A cut in the control period acquits.
//
// An innocent event is refused only if two cuts that have nothing to do with it fall between its hand-over and its
// acknowledgement, with none in the control period. Where connections break once in T on average and an
// acknowledgement takes a, that is (a/T)² for each suspect: 4 in 10⁸ for 2 ms and 10 s. A server that goes down some
// fixed time after each start either meets the control period, or leaves time enough for the event to be acknowledged. A
// slow server does not cut: what comes later than a second after the hand-over does not count. A server that goes down
// with whatever it is to store does get its first suspect refused; but then it goes down with the dead letter too, and
// the pump ends with an error and nothing acknowledged.
//
// The claim store and Heard use the same connection; the former waits while anybody is suspected.
//
// # What the bus remembers
//
// [NATS.Heard] is the last stream event of a resource that the stream has. It outlives what the agent remembers: an agent
// whose checkpoint is lost, or was restored together with etcd, learns from it how far history had come.
//
// # Goroutines
//
// NATS.Run: itself, a sweeper (overdue acknowledgements, stuck
// calls; every 100 ms while calls are on their way), one that breaks the connection at the end, one that connects and checks
// the stream, and nats.go's own (reader, flusher, callbacks, the subscription's). Pump.Run: its workers, and one for each event that is parked. All have ended when
// Run returns.
//
// # What it never does
//
// It never coalesces or skips; it never logs a body or a secret.
package publish
