// Package kafka publishes events to topics of a Kafka cluster.
//
// # Partitions
//
// Each partition of a topic has a queue, a goroutine, an idempotent producer (package producer),
// and at most one batch in flight. Later events form the next batch, so batches grow with the
// latency of acknowledgements, and nothing lingers. A lost answer leaves only the newest batch in
// doubt, and no error changes the order. Each partition has its own producer id, so a reset affects
// that partition alone.
//
// Requests go to the partition's leader, by metadata that is read again after every error. A batch
// is resent, byte for byte, until it is stored or refused. A refused batch is halved until the
// event at fault is alone; its error is final.
//
// A batch is also halved after four consecutive cuts of its connection, each but the first of a new
// connection on which the broker has answered. A single event is handed back with RetryError.Alone:
// it may be the cause, or stored already. With Event.Alone it is sent once, in its own batch and
// connection; a cut hands it back again. An event above the size without objects is sent up to four
// times, then counts as too large: brokers cut requests above socket.request.max.bytes.
//
// An event that is not suspected of cutting connections is never handed back: without their topic,
// or a leader of their partition, they wait in the driver.
//
// # Memory
//
// An event is held in encoded form, and compressed in the batch in flight. The number of batches
// made at once is that of the processors.
//
// # Stream events
//
// A stream event goes to each partition of every topic for objects of its resource, and is
// acknowledged when all have stored it. With {namespace} in the template, these are the topics in
// use, and those of the cluster's list, which is at most half a minute old. A later topic begins
// with copies of those that its readers need; see openings.
//
// A scope.started need not wait for all partitions. One that has not stored it after ten seconds
// keeps a copy in its queue, even after Done, before all later events.
//
// # The progress of the agent
//
// It is one event about all scopes (object.Report), and goes to each partition of each topic like a
// stream event. A topic gets only the entries of scopes that may have objects in it. It waits for
// partitions like a scope.started. A partition gets the next one of the writer only after it has
// stored the previous one. With {namespace} in the template, reportTopics and selectTopics choose
// the topics. It does not wait for a missing topic if another one has it.
//
// [Bus.LastProgress] reads back from the ends of partitions.
//
// # Goroutines
//
// Run starts one that reads the cluster's metadata, prepares topics and starts their partitions;
// one that compares topic identities; and one that carries stream events to partitions. Each
// partition of a topic in memory has one. A request starts none: its caller reads the answer. All
// end before Run returns. LastProgress starts some, which end before it returns.
//
// Publish never waits: it appends to a queue. A partition checks the fence before each attempt, a
// connection before each write.
package kafka
