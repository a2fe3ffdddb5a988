// Package relay forwards records from a bus to HTTP, Slack, a stream of bytes, or another bus. Each
// relay has its own cursor: a slow receiver delays neither the bus, nor the agent, nor other
// relays.
//
// # Invariants
//
//   - At least once: the cursor is a low-water mark. All records up to it were delivered, filtered
//     out, or skipped with a log line. After a crash, later records that were delivered are sent
//     again, with the same ids.
//   - Order per object: a record is sent after the previous one of its partitionkey is delivered.
//     The sequence identifies a repeat.
//   - A stream event is sent after all earlier records of its resource are delivered, and before
//     all later ones. Otherwise a receiver would remove objects whose read events are still in
//     flight.
//   - A Kafka topic has a copy of each stream event in each partition: snapshot.completed and
//     progress are sent with the last copy, the others with every copy.
//   - Nothing is dropped without a counter and a log line. Records that the bus no longer had are
//     counted as missed.
//   - The relay reads at most maxAhead records beyond the cursor; then reading waits. It also waits
//     while the objects and patches of the records that wait or are in flight have more than 16
//     MiB.
//
// # Cursor
//
// On JetStream it is a key of the bucket kubecdc-relay, or of the bucket of a confined reader,
// written by compare-and-set. A relay that starts takes it over. The former holder detects that
// within a second of its next delivery, after ten seconds at the latest, and ends with
// subscription.ErrElsewhere. On Kafka it is the offsets of the consumer group kubecdc-relay-NAME.
//
// # Goroutines
//
// Run starts a reader, the goroutines of a publish.Dispatcher, one that saves the cursor, and the
// target's Run. They end before Run.
//
// The package never changes or removes a record of the bus that it reads, and never logs a body or
// a secret.
package relay
