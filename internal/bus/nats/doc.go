// Package nats publishes events to a stream of NATS JetStream, and stores large events in its
// object store.
//
// # Invariants
//
//   - An event ends without an error only after JetStream has acknowledged it.
//   - An acknowledgement that says "duplicate" is a claim: the event ends after the record was read
//     back and is this event.
//   - A resent event carries the same Nats-Msg-Id, so the stream stores one record of it within its
//     duplicate window. A copy that was stuck in a broken connection for longer is stored late;
//     consumers recognise it by its id. After a false claim, the event carries another Nats-Msg-Id.
//   - The bus refuses a stream that would lose records silently, at every connect. It never changes
//     a stream.
//   - Publish never waits: not for the server, not for the fence, and not for a socket.
//
// # How it publishes
//
// There is one connection, one subscription to <inbox>.*, and a table of the events in flight.
// Publish composes the message in the caller's goroutine and adds it to the queue of the sender,
// the only goroutine that writes messages. The reply subject names slot, call and attempt. The
// subscription's goroutine finds the event in the table and ends it. An acknowledgement counts for
// every attempt of the event, because all carry the same bytes; an error counts only for the latest
// attempt. If it says "duplicate", the sender requests the record, and the event waits for it;
// claim.go describes this.
//
// If the response means "not now", the bus returns the event to the caller. If there is no
// response, the bus resends the event itself, after a timeout, which doubles, and after the loss of
// the connection. All events in flight then return to the queue in the order of their arrival, and
// wait for the check of the stream on the next connection. nats.go buffers nothing meanwhile
// (ReconnectBufSize -1).
//
// An event does not end while nats.go reads its message: a response to an earlier attempt that
// arrives then counts after the hand-over.
//
// nats.go dials, shakes hands and writes under the connection's lock. A server that does not read
// could thus block the sender, and the end of Run, for the duration of a write (10 s). The dialer
// therefore keeps a handle on the socket, and the end of Run breaks it.
//
// No error reports a network path that silently drops packets. Therefore each connection sends a
// PING every five seconds. If no data arrives for ten, the dialer closes the connection, and
// nats.go connects again. A server that is slow, but answers PINGs, keeps its connection.
//
// nats.go closes a connection for good if the server sends an error that it does not know. Run then
// opens another one.
//
// # An event that makes the server cut the connection
//
// A message can cause this: a control line too long for the server, a proxy that inspects it, a
// defect. An event that was in flight on two connections in a row when they broke, without a
// response, is returned to the caller and resubmitted with Alone. Unrelated events may be among
// them. Each is sent on a separate connection, which is closed afterwards. All other events
// continue meanwhile. A connection that the fence broke does not count.
//
// # The last events in the stream
//
// [Bus.LastStreamEvent] returns the last stream event of a resource in the stream. It outlives the
// checkpoint: an agent whose checkpoint is lost, or was restored together with etcd, learns from it
// the last published resourceVersion.
//
// [Bus.LastProgress] returns the last progress of an agent, which may be in several records. Both
// ask the stream's leader by a request for one record (STREAM.MSG.GET), which needs no consumer and
// no other permission than the check of duplicates.
//
// # Goroutines
//
// Run starts five: two senders (one for isolated events), one that checks for overdue
// acknowledgements every 100 ms, one that connects and checks the stream, and one that breaks the
// connection at the end. nats.go has its own: reader, flusher, callbacks and the subscription's.
// All have ended when Run returns.
//
// # What it never does
//
// It never coalesces, skips or drops an event, and never logs a body or a secret.
package nats
