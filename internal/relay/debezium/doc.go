// Package debezium sends the records of a relay to Kafka as rows of a table: in the envelope of
// Debezium, with op, before and after. So programs that read change data, such as Flink, need not
// know the rules of kubecdc's record.
//
// # What is sent
//
// Each event of an object is a row, under the key of its record. Events about the stream go to a
// topic of their own, as plain JSON. Neither is a record of kubecdc: a reader of records rejects
// both.
//
// # Invariants
//
//   - For each key, the last row is the object's latest known state, or a delete and a tombstone.
//     [Row] defines what happens if parts of an event are missing: a row with an unknown state has
//     the object's identity only, and never an outdated state.
//   - A late event never replaces a later one, as long as the process knows the later one (see
//     history).
//   - snapshot.completed deletes the rows of objects that no longer exist. The topic itself is the
//     table: it is read from its beginning, so the sweep needs no state in memory between two
//     events, and a relay that was killed repeats it.
//   - An object that exists is not deleted by a sweep, even if its read was lost on the way to the
//     topic. Then its snapshot sweeps nothing.
//
// # Goroutines
//
// Run starts those of both buses, and one that sweeps. They end before Run returns.
package debezium
