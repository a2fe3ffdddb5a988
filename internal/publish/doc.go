// Package publish hands events to a bus and returns when the bus has acknowledged them.
//
// A Pump's workers take a delta from the queue, have it encoded into a buffer of their own, and call the Publisher, which
// blocks until the acknowledgement is there; then they tell the delta's Acker and free its slot. Since the queue never
// hands out two deltas of one key, an object's events are in order on any bus, whatever is retried; the width comes from
// the number of workers.
//
// NATS publishes over one asynchronous connection: a message carries a reply subject of its own below one wildcard
// subscription, and the call that sent it waits there. It retries a lost or late acknowledgement with the same
// Nats-Msg-Id, so that within the stream's duplicate window a copy is dropped by the server. A full stream is
// backpressure. Nothing is published before the stream has been checked: one that would lose records silently is
// refused.
//
// What the bus refuses for good, or cannot be encoded, is parked: tried again now and then, loudly, while its object's
// later deltas wait and all others go on.
//
// # Goroutines
//
// Pump.Run runs its workers and one more for what is parked. NATS.Run runs the supervisor of the connection, the sweeper
// of late acknowledgements, and those of nats.go. Both return after all of them have ended.
//
// The package never drops, reorders within a key, or gives up on an event while its context lasts.
package publish
