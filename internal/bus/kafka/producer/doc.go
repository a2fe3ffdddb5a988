// Package producer writes record batches to one partition of Kafka as an idempotent producer: the
// partition stores each batch once, even if connections, answers or leaders are lost.
//
// A [Producer] has one batch at a time. Load makes it, and Send sends it once. The caller chooses
// the broker, waits between two attempts, and repeats Send until the batch is stored or refused, or
// until it gives up the batch with Drop.
//
// # Invariants
//
//   - (producer id, epoch, first sequence) permanently identifies the records of one batch. Send
//     repeats a batch byte for byte, except for timestamps that the broker refuses. The broker
//     checks timestamps before it looks for copies (LogValidator), so an earlier attempt may be
//     stored although this one was refused. With the same sequence the broker stores the first to
//     arrive.
//   - The next epoch begins, at sequence 0, after Drop, a refused batch, or an answer that the
//     broker cannot continue (OUT_OF_ORDER_SEQUENCE, UNKNOWN_PRODUCER_ID). An idempotent producer
//     raises its epoch by itself (KIP-360). After the last epoch, or if the broker has a later one,
//     the producer gets another id.
//
// # Late copies
//
// A copy of a request on an abandoned connection is harmless:
//
//   - Batch B is sent on connection 1, which breaks with a copy of B in it. B is sent again on
//     connection 2 and acknowledged. Then the copy arrives. If its sequences are those of one of
//     the last five batches, the broker answers it and does not append it. After later batches, its
//     sequence is not the next one, and the broker refuses it.
//   - The copy arrives first. The broker appends it, and the batch on connection 2 is the
//     duplicate.
//   - The leader has changed. The old leader refuses the copy, or appends it, unaware of the
//     change, to a log that it will have to truncate. The new leader's log has everything stored
//     before the change, and the sequences.
//   - B was refused or dropped, but its copy is appended, for example after the topic's limits were
//     raised. The next batch has a new epoch. In the old epoch it would have B's sequences, and the
//     broker would discard it as a copy of B: lost.
//   - B was in doubt when a new epoch began. The resent B is a second record, next to the first,
//     with the same CloudEvent id: no other batch of this partition is sent in between. After the
//     first append in the new epoch, the broker refuses all copies of old ones.
//
// So a record is stored twice only at a new epoch or producer id whose batch was in doubt, and
// after a restart, which begins with a new producer id. Records change order only if the broker
// loses the producer's state while a copy is in flight: after producer.id.expiration.ms (a day), or
// by an unclean election, which loses acknowledged records anyway.
//
// The package starts no goroutines. A [Codec] is safe for concurrent use, a Producer is not.
package producer
