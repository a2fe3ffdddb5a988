// Package publish hands events to a bus and takes them for done once the bus has acknowledged them. A [Pump] moves
// deltas from the queue through an encoder to a [Publisher]; [NATS] publishes to JetStream, [Kafka] to topics, [HTTP] to a
// receiver of CloudEvents, [Stdout] to a stream of bytes.
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
// # How Kafka publishes
//
// Each partition of a topic has a queue, a goroutine and a producer id of its own, and at most one batch on its way. What
// comes meanwhile waits, and goes out together when the batch before is acknowledged: there is no time to linger. One batch
// and no more, since what a lost answer leaves in doubt is then always the newest batch, which any broker can still tell
// from a new one; since nothing has to be put in order behind an error; and since batches grow by themselves when acknowledgements
// take longer. A producer id for each partition, since a reset then concerns that partition alone: with one for
// all, everything on its way to any broker would have to come to rest first. A broker keeps its memory of producers by
// partition anyway.
//
// (producer id, epoch, first sequence) names the records of one batch for ever. A batch is sent again as it is until the broker
// answers. If the broker refuses its timestamps, it is sent again with others under the same sequence, because an earlier copy may
// be stored: the broker looks at timestamps before it looks for copies (LogValidator). Whichever arrives first is stored. Whatever makes another batch of it, or gives it up, begins the next epoch, at sequence 0: a batch that is halved
// since it is too large, an event that is refused, and a broker that does not know how to go on (OUT_OF_ORDER_SEQUENCE,
// UNKNOWN_PRODUCER_ID). An idempotent producer raises its epoch by itself (KIP-360); at the end of epochs, and where a
// broker knows a later one, it gets another id.
//
// Copies of a request that are late, of a connection that was given up, cannot do harm:
//
//   - Batch B, sequence s, is sent on connection 1, which breaks; its copy is stuck there. B is sent on connection 2, and is
//     acknowledged. The copy arrives: its sequences are those of one of the last five batches, and it is answered, not
//     appended. Or later ones have pushed it out: s is not the next sequence, and it is refused.
//   - The copy arrives first: it is appended, in its place, and what connection 2 brings is the duplicate.
//   - The leader has changed. The old one does not lead any more and refuses the copy, or does not know yet and appends it to a
//     log that it will have to cut: replicas that are in sync follow another one. What was stored before the change is in the
//     new leader's log, and with it the sequences.
//   - B was refused and given up, or its calls have all ended and it is. The copy arrives and is taken after all, since the topic's limits have been changed: the
//     event is in the log and in the dead letters. The next batch has a new epoch. In the old one it would have had B's
//     sequences, and been taken for B: lost.
//   - B was in doubt when a new epoch began. Its second sending is a second record, next to the first (same CloudEvent id):
//     nothing else of this partition is sent in between. From the first append in the new epoch on the broker refuses all
//     copies of old ones; one that comes before that stands before it.
//
// So a record is there twice only around a new epoch or producer id whose batch was in doubt, and after a restart of the agent, which
// begins with new producer ids. Out of order is one only if the broker forgets the producer while a copy is on its way, that is after
// producer.id.expiration.ms (a day), or by an unclean election, which loses acknowledged records anyway.
//
// Requests go to the partition's leader, by metadata that is asked for after every error. An error is never skipped: the batch
// stays until it is stored, refused, or nobody waits for it any more. A refused batch is halved until the event is alone. So is one
// for which the connection is cut four times in a row while the broker answers on another one that stood before. It is too
// large then if it is larger than an event without its objects.
//
// A stream event goes to each partition of every topic that objects of its resource go to, but progress with {namespace} in the
// template: see progressTopics. Gaps and snapshots' events wait for all partitions. Progress waits for progressWait; a partition
// that does not have it then keeps it in its queue, before all later events, and gets no second one of the scope until it has it. With {namespace} in the template
// these are the topics that exist then, by a list that is up to half a minute old, and all that this agent has in memory. The
// readers of a topic that is born later see its snapshot's read events without snapshot.started, and its
// snapshot.completed if it comes after the birth.
//
// # How HTTP publishes
//
// A single request is made by the call of Publish itself, and ends with its ctx. With batches, calls put their events into one
// queue and wait. Each of a few senders takes the oldest that wait, copies them under the queue's lock into one array, posts
// it, and tells each call what came of it. Nobody lingers: batches grow as the answers take longer. A call whose ctx ends
// leaves at once; its event, if it was taken, goes on as a copy with those of the others, and the request is given up only
// when no call waits for it any more. An event's call waits for the answer, so nothing of its key is sent meanwhile, and
// whatever order the batches arrive in, each key's is kept. A batch that is refused, or fails for a reason that may lie in
// one of its events, falls apart: each goes on alone.
//
// All requests pass a throttle. 429, 503 and a receiver that cannot be connected to shut it. When the time is over that the
// receiver asked for, one request tries, and whatever becomes of it but the same again opens it. A batch is filled only
// once it may go.
//
// net/http may read a request's body even after it has returned. So it reads through a window that is shut before Publish
// returns, or the array is used again; who reads on gets an error, and the connection is given up.
//
// For a request that makes the receiver cut the connection see [HTTP].
//
// # What the bus remembers
//
// [NATS.Heard] is the last stream event of a resource that the stream has. It outlives what the agent remembers: an agent
// whose checkpoint is lost, or was restored together with etcd, learns from it how far history had come.
//
// # Goroutines
//
// HTTP.Run: itself, and with batches the senders. Kafka.Run: one that looks at the cluster, and one for each partition of
// a topic that is in memory; those that use a connection use it themselves. NATS.Run: itself, a sweeper (overdue acknowledgements, stuck
// calls; every 100 ms while calls are on their way), one that breaks the connection at the end, one that connects and checks
// the stream, and nats.go's own (reader, flusher, callbacks, the subscription's). Pump.Run: its workers, and one for each event that is parked. All have ended when
// Run returns. net/http has two for each connection, which end moments after it is closed.
//
// # What it never does
//
// It never coalesces or skips; it never logs a body or a secret.
package publish
