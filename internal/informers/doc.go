// Package informers decides which resources are observed. It discovers the resources that a
// selection names, and runs one Informer (package informer) per resource, or per namespace if the
// selection lists namespaces literally.
//
// # Loop
//
// A Manager has one loop (loop.go). Its inputs are:
//
//   - answers of discovery (package discovery) and new selections (reload.go)
//   - changes of definitions, namespaces (namespaces.go, access.go) and Nodes (deletednodes.go)
//   - informers that have drained (drain.go), or have sent everything of a removed resource
//     (retire.go)
//
// The loop applies an input with mu held. It compares the wanted informers with the running ones,
// and starts informers and tombstones (drain.go). It waits for nothing: work that takes time runs
// in its own goroutine, which passes its result to the loop.
//
// An informer starts at the last position of its scope (begin.go), or at the creation of its
// resource. Only Manager.remove removes one.
//
// # Path of a change
//
//   - package informer reads a list page by page straight into the store, and a watch in batches.
//   - package selection finds the rule that takes a version, which decides what is redacted, before
//     anything is copied.
//   - package store compares it with the last-known object, forms the Delta and puts it into the
//     informer's lane of the queue. It blocks while the queue is full, and drops nothing. An HTTP
//     watch that stays unread because of that is ended after 250 ms.
//   - a rule's filter checks each delta right before that. A withheld delta is acknowledged at
//     once. The next delta of the object has the number of its withheld versions.
//
// The content of a scope is the way in which its objects are cut and redacted. The checkpoint
// stores its name. If it differs at a restart, the scope first sends a gap in which nothing is
// missing.
//
// # Invariants
//
//   - Between the API server's TCP stream and the queue there are two batches, of at most 64 events
//     and about 64 KB of JSON (or one larger object) each, and read buffers of a bounded size.
//   - The deltas of one key enter the queue in the order of history, and each once.
//   - before is the object that was last handed to the queue for this key (or loaded by a list
//     while nothing was sent).
//   - Deltas that a list makes pending are catch-up: they are sent in key order with the room that
//     live deltas leave, and always before a live delta of the same key.
//   - No live delta and no catch-up passes the stream event that announces it (scope.started,
//     snapshot.started, gap) before the bus has acknowledged that event. The starts are sent once
//     the checkpoint is saved from which the scope and the snapshot can be continued.
//   - scope.ended is sent once the bus has everything else of the scope, except left events that
//     wait for a later resourceVersion. No other informer of a scope of that name starts before.
//   - The checkpoint passes an event of the watch only when all of its deltas are acknowledged, and
//     a gap only when everything is that its relist made pending. It never passes an event that the
//     store has not taken: bookmarks, and events of objects that are not captured, go through the
//     batches like the others.
//   - An object's bytes are stripped and redacted before they are stored. A version that no rule
//     takes is redacted by the paths of all.
//   - Two informers never send deltas of the same objects at a time: an informer that replaces
//     others starts after these have drained.
//
// # Goroutines and locks
//
// Per manager: the loop, discovery, the watches of package discovery, one that logs denials, and
// one that waits for Captured. One for each drain, tombstone, deleted node, and informer
// that is being retired. Run returns after all have ended.
//
// Goroutines that wait for an informer or for the manager do not poll. They wait for a condition on
// a View (status.go), which is checked after each change (package broadcast). Lock order: the
// manager's mu, then the locks of an informer, then those of package discovery.
package informers
