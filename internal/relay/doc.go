// Package relay takes records from a bus on to somewhere else: to HTTP, Slack, a stream of bytes, or another bus. A relay has
// a cursor of its own, so that however slow its receiver is, neither the bus nor the agent nor another relay waits for it.
//
// # Invariants
//
//   - At least once: the cursor is a low-water mark. All records up to it have been delivered, or are not asked for, or were
//     skipped with a line in the log; after a crash the relay goes on behind it, and what had been delivered beyond it is
//     delivered again, under the same ids.
//   - Order per object: a record goes out when the one before it of the same partitionkey has been delivered. A copy that
//     comes again after a crash is old news, which its sequence tells.
//   - Events about the stream keep their place: one goes out when all records of its resource before it have been delivered,
//     and those behind it follow it. Else a receiver would sweep away objects whose reads are still on their way.
//   - From a Kafka topic, which has a copy of them in each partition, snapshot.completed and progress go on once the last
//     partition has come to its copy, the others with every copy.
//   - Nothing is dropped without a counter and a line in the log. What the bus no longer held when the relay came to it is
//     counted as missed.
//   - The cursor is at most as far behind what was read as maxAhead records; then reading waits.
//
// # Cursor
//
// On JetStream it is a key of the bucket [CursorBucket], written by compare-and-set. Who starts a relay takes it over, and
// who held it before notices within a second of its next delivery, at the latest after ten, and ends with [ErrElsewhere].
// On Kafka it is the offsets of the consumer group [GroupPrefix] + name.
//
// # Goroutines
//
// Run: itself, one that reads, those of a publish.Dispatcher, one that saves the cursor, and the target's Run. All have ended when it
// returns.
//
// # What it never does
//
// It never changes or removes a record of the bus it reads from, and never logs a body or a secret.
package relay
