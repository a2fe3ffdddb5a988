// Package scope observes one scope: one resource, in one namespace or all, under selectors. An Informer lists and watches it, and its store turns
// that into deltas.
//
// # Phases
//
// A scope is in one phase (phase.go). One function changes it, and checks the change against this table:
//
//	waiting ──▶ listing ──▶ announcing ──▶ live ◀──▶ blocked
//	   ▲           │             ▲  │        │          │
//	   └───────────┘             │  ▼        ▼          │
//	 the first list failed      relisting ◀─────────────┘   a 410, or a restored etcd
//
//	any of these ──▶ draining ──▶ drained ──▶ removed       another selection: a successor resumes
//	any of these ──▶ retiring ──────────────▶ removed       no longer selected: a Tombstone follows
//	any of these ──────────────────────────▶ removed        its resource or namespace was removed
//
// Beside the phase is the health: ok, failing, stale, forbidden or notserved, with an error, its class and since when.
//
// # Goroutines
//
// Run is the owner. It lists (list.go, resume.go), and follows a succession of HTTP watches (follow.go); after a 410 it lists again.
// A second goroutine reads each HTTP watch, and hands over batches of what lies in its read buffer (watch.go). Beside them run the two
// goroutines of the store, and one that sends progress events. Fields of owner belong to the goroutine of Run. Everybody else calls methods: commands
// (Kick, Drain, Remove, Restore, Rebase, NewGeneration, SetFilter, TakeSnapshot), and View, whose channel is closed by the next change.
//
// # History
//
// A list is of one of three kinds: fresh, if nothing is known; of the objects as they were at the checkpoint (resume.go); or a
// relist, if the watch could not resume. Package store compares a relist with the last-known objects, and package backfill recovers
// versions in between (gap.go, asker.go). After a connection broke, a probe asks whether history is still the one that was followed
// (follow.go): an etcd that was restored gives resourceVersions a second time.
//
// # Locks
//
// Each mutex guards the group of fields that it is in, and is held for short times. Order: removal, then store; store, then state.
package scope
