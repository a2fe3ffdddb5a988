// Package kafka publishes events to topics of a Kafka cluster. [Bus] implements publish.Bus.
//
// # Partitions
//
// Each partition of a topic has a queue, a goroutine and an idempotent producer (package producer), and at most one batch on its way.
// Events that come meanwhile wait in the queue and make up the next batch, so batches grow when acknowledgements take longer, and nothing lingers.
// With one batch on its way, a lost answer leaves only the newest batch in doubt, which any broker can still tell from a new one, and nothing has to be
// put in order again after an error. Each partition has a producer id of its own, so a reset concerns that partition alone. Brokers keep producers by
// partition anyway.
//
// Requests go to the partition's leader, by metadata that is read again after every error. A batch is sent again, byte for byte, until it is stored or
// refused. A batch that is refused is halved until the event to blame is alone; its error is final.
//
// If the connection of a batch is cut four times in a row, each time but the first on a new connection on which the broker has answered before, the batch is
// halved too. An event that is alone then is handed back with RetryError.Alone: it may be the cause, or be stored already. With Event.Alone it is
// sent in a batch and on a connection of its own, once; a cut hands it back again. If it is larger than an event without its objects, it is sent up to four
// times, and counts as too large then: brokers cut the connection of requests above socket.request.max.bytes.
//
// Nothing else is handed back to be published again: events for a topic that does not exist, or for a partition without a leader, wait in the driver.
//
// # Memory
//
// An event is held once, as it was encoded, and once more in the batch that is on its way, compressed. The records of a batch exist uncompressed only while it is
// made; as many batches are made at once as there are processors.
//
// # Stream events
//
// A stream event goes to each partition of every topic that objects of its resource go to, and is acknowledged when all have it. With {namespace} in the
// template these are the topics that exist then, by a list that is up to half a minute old, and all that are in memory. The readers of
// a topic that is created later see its snapshot's read events without snapshot.started, and snapshot.completed if it comes after the creation.
//
// Progress goes to fewer topics, see progressTopics, and does not wait for partitions for ever. A partition that does not have it after ten seconds keeps
// a copy in its queue, also after Done, before all later events, and gets no second one of the scope until it has stored it.
//
// # Goroutines
//
// Run starts one that looks at the cluster, makes topics ready and starts their partitions; one that compares the identity of topics; one that carries stream
// events to partitions; and one for each partition of a topic that is in memory. Requests have none of their own: who makes a request reads its answer.
// All have ended when Run returns.
//
// Publish never waits: it appends to a queue. The fence is asked by the partition's goroutine before each attempt, and by the connection before each write.
package kafka
