// Package past writes a long record of a cluster for the measurement of questions about the past: snapshots, changes and progress of a
// day, encoded as the agent encodes them. The same Options make the same record.
//
// Write hands events to a function in the order of the record. FillJetStream and FillKafka put them on a bus.
package past
