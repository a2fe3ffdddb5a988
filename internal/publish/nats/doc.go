// Package nats publishes events to a stream of NATS JetStream, and keeps large events in its object store.
//
// # Invariants
//
//   - An event ends without an error only after JetStream has acknowledged it.
//   - An event that is sent again carries the same Nats-Msg-Id, so the stream has one record of it within its duplicate window. A copy that was
//     stuck in a broken connection for longer is stored late; consumers recognise it by its id.
//   - A stream that would lose records silently is refused at every connect, and no stream is ever changed.
//   - Publish never waits: neither for the server nor for the fence nor for a socket.
//
// # How it publishes
//
// There is one connection, one subscription to <inbox>.*, and a table of the events in flight. Publish makes the message in the caller's goroutine
// and puts it into the queue of the sender, the only goroutine that writes messages. The reply subject of a message names slot, call and attempt.
// The subscription's goroutine finds the event in the table, and ends it. An acknowledgement counts for each attempt of the event, because all
// carry the same bytes; an error counts for the latest only.
//
// An answer that says "not now" hands the event back to the caller. An attempt without an answer is made again by the bus itself: after a timeout,
// which doubles, and after the connection was lost. Then all events in flight go back to the queue in the order of their arrival, and wait
// until the stream was checked on the next connection. nats.go keeps nothing meanwhile (ReconnectBufSize -1).
//
// While nats.go reads a message, its event does not end: an answer to an earlier attempt that comes then counts after the hand-over.
//
// nats.go dials, shakes hands and writes under the connection's lock. A server that does not read would thus hold the sender for as long as a
// write may take (10 s), and the end of Run with it. So the dialer keeps a handle on the socket, and the end of Run breaks it.
//
// nats.go closes a connection for good if the server says something that it does not know. Run then makes another one.
//
// # An event that makes the server cut the connection
//
// A message may do that: a control line that is too long for the server, a proxy that looks into it, a defect. An event that was in flight on two
// connections in a row when these broke, without an answer, is handed back and comes again with Alone. So may be others that are innocent. Each is
// sent on a connection that carries nothing else, and that is closed afterwards. All other events go on meanwhile. The cut of a
// connection that the fence broke counts for nothing.
//
// # What the stream remembers
//
// [Bus.LastStreamEvent] is the last stream event of a resource in the stream. It outlives the checkpoint: an agent whose checkpoint is lost, or was
// restored together with etcd, learns from it how far history had come.
//
// # Goroutines
//
// Run has the sender, one for events that are sent alone, one that looks for overdue acknowledgements every 100 ms, one that connects and checks
// the stream, and one that breaks the connection at the end; and nats.go's own: reader, flusher, callbacks and the subscription's. All have ended when Run
// returns.
//
// # What it never does
//
// It never coalesces, skips or drops an event, and never logs a body or a secret.
package nats
