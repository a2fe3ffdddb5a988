// Package past generates the record of a cluster of the past, to measure questions about it. The
// record is what one agent writes in weeks: changes of objects, a snapshot of each scope a day, a
// progress a minute, and the starts of its runs. The same Options make the same record. Its bytes
// are those of the agent's own encoder.
//
// A Cache keeps records on a bus as if the agent had written them then: JetStream and Kafka store
// each event with the time at which it was observed. It keeps two lengths of one record. The
// shorter one has only the last days, as if retention had removed the rest. So both have the same
// answer to a question about these days.
//
// # Storage times of JetStream
//
// A server stores messages with its own time. So the records are stored by a server in this process
// that serves no client. The exported Account.RestoreStream restores an empty stream and returns
// it, and its Store takes messages with sequence and time. Another server then serves the files.
package past
