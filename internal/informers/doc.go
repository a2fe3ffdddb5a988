// Package informers observes: it turns the lists and watches of an API server into deltas and hands them to a bounded
// queue, blocking when the queue is full.
//
// # Path
//
// A Set discovers the resources that a selection names (package discovery) and runs one informer per resource (per namespace where the
// selection lists namespaces literally), however many rules take objects of it. Of one rule the API server applies the
// selectors; of several, the agent finds for each version the rule that takes it, before anything is copied (package
// selection): that decides what is redacted. One goroutine owns an informer. It lists
// and follows, in a loop:
//
//   - list reads page by page straight into the store.
//   - follow applies a succession of HTTP watches to the store. Only a 410 (history gone), or a history that is another one, ends it:
//     then the loop lists again. A second goroutine reads and packs the frames of each HTTP watch, and hands over what lies in the
//     read buffer as one batch.
//   - package store compares with the last-known object, forms the Delta and puts it into the informer's lane of the queue. It blocks while
//     the queue is full, and drops nothing. An HTTP watch that is not read because of that is ended after 250 ms.
//
// # History
//
// A list is of one of three kinds: fresh, if nothing is known; of the objects as they were at the checkpoint (resume.go); or a
// relist, if the watch could not resume. Package store compares a relist with the last-known objects, and package backfill recovers
// versions in between. After a connection broke, a probe asks whether history is still the one that was followed (probe.go): an etcd that was
// restored gives resourceVersions a second time.
//
// Package store also has the position: the resourceVersion up to which the bus has acknowledged all of history, and the key up to
// which it has acknowledged a snapshot's reads.
//
// # What is not sent
//
// A rule's filter sees each delta right before it would be put into the queue, live or catch-up (package store). What it withholds is
// acknowledged at once; how many versions of an object that were, its next delta tells. That is known for the lifetime of an
// informer: behind it a stream event comes first.
//
// What is cut and redacted is the content of a scope (package selection). The checkpoint keeps its name: where it is another one at a
// restart, a gap in which nothing is missing comes first.
//
// A new selection is taken while the set runs (reload.go): an informer that has to change comes to rest, and another one goes
// on where all that it sent is acknowledged, as after a restart.
// The set does not wait for that (drain.go).
//
// # Invariants
//
//   - Between the API server's TCP stream and the queue there are two batches, of at most 64 events and about 64 KB of JSON (or one
//     larger object) each, and read buffers of a bounded size.
//   - The deltas of one key enter the queue in the order of history, and each once.
//   - before is the object that was last handed to the queue for this key (or loaded by a list while nothing was sent).
//   - What has to be sent because of a list is catch-up: it is sent in key order with the room that live deltas leave,
//     and always before a live delta of the same key.
//   - No live delta and no catch-up passes the stream event that announces it (snapshot.started, gap) before the bus has
//     acknowledged that one; and snapshot.started is sent once the checkpoint from which it can be continued is saved.
//   - The checkpoint passes an event of the watch only when all of its deltas are acknowledged, and a gap only when all that
//     a relist made due behind it is. Nothing advances it past an event that the store has not taken: bookmarks, and events of
//     objects that are not captured, go through the batches like the others.
//   - An object's bytes are stripped and redacted before anything holds them; a version that no rule takes, as all rules do.
//
// # Phase and health
//
// An informer has a phase (what it does) and a health (whether that succeeds). The table of phases and the one function that changes them are in
// phase.go. The store reports when a list begins and when the gate closes or opens, the owner when its first list has its turn or has failed, the
// reader when its events are not taken, and the manager that the informer leaves.
//
// # Goroutines
//
// Per set: discovery, one that takes new selections, one that logs what must not be read, and until the first snapshot of every resource is on the bus
// one that waits for that (Captured). For each scope that the last run had and this one has not: one that says farewell
// (farewell.go). For each resource of which informers come to rest: one that has others take their place.
// Per informer: the owner (which lists, and calls the store), the reader of its HTTP watch, those of its store,
// and the one that tells progress. All end with the context of Run, and Run returns after they have. One informer's errors
// stop no other.
//
// # Waiting
//
// Goroutines that wait for an informer or for the set do not poll: they wait for a condition on a View (view.go), which is looked at
// after each change (package broadcast). An event that nobody waits for costs one atomic load more for that.
//
// The package never encodes, publishes, or buffers without a bound.
package informers
