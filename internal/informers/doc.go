// Package informers decides what is observed: it discovers the resources that a selection names, and runs one Informer (package scope) per
// resource, or per namespace if the selection lists namespaces literally.
//
// # Loop
//
// A Manager has one loop (loop.go). Its inputs are:
//
//   - answers of discovery (package discovery) and new selections (reload.go)
//   - changes of definitions, namespaces (namespaces.go, access.go) and Nodes (takeover.go)
//   - informers that have drained (drain.go), or have sent everything of a removed resource (retire.go)
//
// The loop applies an input with mu held: it compares the wanted informers with those that run, starts informers and tombstones (drain.go),
// and waits for nothing. Work that takes time runs in a goroutine of its own, and hands its result to the loop.
//
// An informer begins where its scope was left, by this run or the one before (begin.go), or at the creation of its resource. One function
// removes informers, with all of their state that is not needed any more.
//
// # Path of a change
//
//   - package scope reads a list page by page straight into the store, and a watch in batches.
//   - package store compares with the last-known object, forms the Delta and puts it into the informer's lane of the queue. It blocks while
//     the queue is full, and drops nothing. An HTTP watch that is not read because of that is ended after 250 ms.
//
// The API server applies the selectors of a single rule. If there are several rules, the agent finds for each version the rule that takes it, before
// anything is copied (package selection): that rule decides what is redacted. The content of a scope is what is cut and redacted. The checkpoint
// stores its name: if that differs at a restart, the scope first sends a gap in which nothing is missing.
//
// A rule's filter sees each delta right before it is put into the queue. A delta that it withholds is acknowledged at once. The next delta
// of the object has the number of its versions that were withheld.
//
// # Invariants
//
//   - Between the API server's TCP stream and the queue there are two batches, of at most 64 events and about 64 KB of JSON (or one
//     larger object) each, and read buffers of a bounded size.
//   - The deltas of one key enter the queue in the order of history, and each once.
//   - before is the object that was last handed to the queue for this key (or loaded by a list while nothing was sent).
//   - Deltas that a list makes pending are catch-up: they are sent in key order with the room that live deltas leave,
//     and always before a live delta of the same key.
//   - No live delta and no catch-up passes the stream event that announces it (snapshot.started, gap) before the bus has
//     acknowledged that one; and snapshot.started is sent once the checkpoint from which it can be continued is saved.
//   - The checkpoint passes an event of the watch only when all of its deltas are acknowledged, and a gap only when everything that
//     its relist made pending is. Nothing advances it past an event that the store has not taken: bookmarks, and events of
//     objects that are not captured, go through the batches like the others.
//   - An object's bytes are stripped and redacted before anything holds them. A version that no rule takes is redacted as all rules do.
//   - Two informers never send deltas of the same objects at a time: an informer that replaces others begins after these have drained.
//
// # Goroutines and locks
//
// Per manager: the loop, discovery, the watches of package discovery, one that logs denials, and one that waits until the first snapshot of every
// resource is on the bus (Captured). One for each drain, tombstone, take-over of a node, and informer that is being retired.
// All end with the context of Run, and Run returns after they have. An error of one informer does not stop another.
//
// Goroutines that wait for an informer or for the manager do not poll: they wait for a condition on a View (status.go), which is checked
// after each change (package broadcast). Lock order: the manager's mu, then the locks of an informer, then those of package discovery.
//
// The package never encodes, publishes, or buffers without a bound.
package informers
