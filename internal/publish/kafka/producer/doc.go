// Package producer writes record batches to one partition of Kafka as an idempotent producer: the partition stores each batch once,
// whatever becomes of connections, answers and leaders.
//
// A [Producer] has one batch at a time. Load makes it, and Send sends it once. The caller chooses the broker, waits between two
// attempts, and repeats Send until the batch is stored or refused, or until it gives the batch up with Drop.
//
// # Invariants
//
//   - (producer id, epoch, first sequence) names the records of one batch for ever. Send repeats a batch byte for byte, except for its
//     timestamps if the broker refuses those: the broker looks at timestamps before it looks for copies (LogValidator), so an earlier
//     attempt may be stored although this one was refused. Under the same sequence the broker stores whichever arrives first.
//   - Whatever replaces a batch begins the next epoch at sequence 0: Drop, a batch that the broker refuses, and an answer that says that
//     the broker does not know how to continue (OUT_OF_ORDER_SEQUENCE, UNKNOWN_PRODUCER_ID). An idempotent producer raises its epoch by
//     itself (KIP-360). After the last epoch, and if the broker knows a later one, the producer gets another id.
//
// # Late copies
//
// A copy of a request that is stuck on a connection that was given up cannot do harm:
//
//   - Batch B is sent on connection 1, which breaks with a copy of B in it. B is sent again on connection 2 and acknowledged. Then the
//     copy arrives. If its sequences are those of one of the last five batches, the broker answers it and does not append it. If later
//     batches have pushed them out, its sequence is not the next one, and the broker refuses it.
//   - The copy arrives first. The broker appends it, and what connection 2 brings is the duplicate.
//   - The leader has changed. The old leader refuses the copy, or does not know yet and appends it to a log that it will have to
//     truncate. Everything stored before the change is in the new leader's log, together with the sequences.
//   - B was refused or dropped, and its copy is appended after all, for example because the topic's limits were raised. The next batch has a
//     new epoch. In the old epoch it would have had B's sequences, and the broker would have taken it for B: lost.
//   - B was in doubt when a new epoch began. Its second sending is a second record, next to the first, with the same CloudEvent id: nothing
//     else of this partition is sent in between. From the first append in the new epoch on, the broker refuses all copies of old ones.
//
// So a record is stored twice only around a new epoch or producer id whose batch was in doubt, and after a restart, which begins with
// a new producer id. Records change places only if the broker forgets the producer while a copy is on its way: after
// producer.id.expiration.ms (a day), or by an unclean election, which loses acknowledged records anyway.
//
// The package starts no goroutines. A [Codec] is safe for concurrent use, a Producer is not.
package producer
