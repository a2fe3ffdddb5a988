// Package informer observes one scope: one resource, in one namespace or all, under selectors. An
// Informer lists and watches it, and its store turns that into deltas.
//
// # Phases
//
// A scope is in one phase. One function changes it, and checks the change against the table of
// leadsTo (phase.go). The main changes are:
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
// The health is independent of the phase: ok, failing, stale, forbidden or notserved, with an
// error, its class and its start.
//
// # Goroutines
//
// Run's goroutine is the owner. It lists (list.go, resume.go), and follows a succession of HTTP
// watches (follow.go); after a 410 it lists again. A second goroutine reads each HTTP watch, and
// hands over batches from its read buffer (watch.go). A third one asks whether a silent HTTP watch
// holds back changes (buffering.go). Beside them run the two goroutines of the store, and one that
// asks for the version of the API server after an interruption (coverage.go). The cursor of the
// store calls back: it recovers versions (gap.go), and asks about single objects (asker.go). Only
// the owner uses the fields of runState, except that it lends buffering to the third goroutine.
// Other goroutines call View, whose channel is closed by the next change, and the other exported
// methods.
//
// # History
//
// A list is of one of three kinds. A fresh list is made if nothing is known. A watch may begin with
// it (first.go). If the resource was created during the run, or is removed, a fresh list needs no
// request. A checkpoint list reads the objects as they were at the checkpoint (resume.go). A relist
// is made if the watch could not resume, or if only a comparison shows that history is the same
// (relist.go). Package store compares a relist with the last-known objects, and package backfill
// recovers versions in between (gap.go, asker.go). After a connection broke, a probe asks whether
// history is still the followed one (doubt.go): a restored etcd assigns resourceVersions a second
// time.
//
// # Locks
//
// Each mutex guards the group of fields around it, and is held for short times. Order: removal,
// coverage, store, state.
package informer
