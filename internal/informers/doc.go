// Package informers observes: it turns the lists and watches of an API server into deltas and hands them to a bounded
// queue, blocking when the queue is full.
//
// # Path
//
// A Set discovers the resources that a selection names and runs one informer per resource (per namespace where the
// selection lists namespaces literally). An informer is client-go's Reflector between two ends of our own:
//
//   - source lists page by page straight into the store, and gives the reflector one watch that outlives the HTTP
//     watches beneath it: only a 410 (history gone) reaches the reflector, which then lists again;
//   - store implements cache.ReflectorStore. Its calls are synchronous: they compare with the last-known object, form
//     the Delta and put it into the informer's lane of the queue. No call returns an error, since the reflector would log
//     it and go on, which is an event lost; a call blocks, or the agent stops.
//
// # Invariants
//
//   - Between the API server's TCP stream and the queue there is one event, and read buffers of a bounded size.
//   - The deltas of one key enter the queue in the order of history, and each once.
//   - before is the object that was last handed to the queue for this key (or loaded by a list while nothing was sent).
//   - What has to be sent because of a list is catch-up: it is sent in key order with the room that live deltas leave,
//     and always before a live delta of the same key.
//   - No live delta and no catch-up passes the stream event that announces it (snapshot.started, gap) before the bus has
//     acknowledged that one.
//   - An object's bytes are stripped before anything holds them.
//
// # Goroutines
//
// Per set: discovery, one that logs what must not be read, and until the first snapshot of every resource is on the bus
// one that waits for that (Captured).
// Per informer: the reflector (which calls the store), the watch's reader, the catch-up cursor. All end with the
// context of Run, and Run returns after they have. One informer's errors stop no other.
//
// The package never encodes, publishes, or buffers without a bound.
package informers
