// Package backfill recovers the versions of objects inside a gap: a span of history that the watch has lost (410) and that
// LIST may still know. An API server answers LIST with resourceVersionMatch=Exact at any resourceVersion that etcd has not
// compacted, and every revision of etcd is a resourceVersion of every resource.
//
// # Walk
//
// A list at To, compared with the last-known objects at From, shows which names have changed. Walk follows each of them
// backward:
//
//	From ──────────────────────────────────────────────────── To
//	Before        Step        Step     (deleted)       After
//	              rv 7        rv 9       rv 12         rv 15
//	               └─ at 8 ────┘ ◀─ 11 exists, 12 not ──┘ ◀─ at 14: nothing, so 15 created it
//
// A question at the resourceVersion right below a version's own returns the version before it, so each version costs one
// request. If no object had the name there, but Before is known to have existed, a deletion lies in between. Bisection
// between a resourceVersion with an object and a later one without finds a deletion in as many requests as the span has
// binary digits.
//
// Walk cannot find an object that was created and deleted between two points where its name was free. For a name that was
// not in the scope at From, it finds nothing that happened before the creation of the object that has it at To. Finding these
// would take a question at every resourceVersion.
//
// # EveryRevision
//
// EveryRevision lists the whole scope at each revision of a short gap. Nothing is missing then, not even an object that was
// created and deleted inside, and no gap has to be announced. This is also how history continues when the definition of a
// custom resource changes: the API server then starts a new history of the resource and refuses earlier watches, although
// no change is lost.
//
// # Invariants
//
//   - A step is a version that the API server returned, or the deletion that follows from two of its answers. If the answers
//     contradict the known objects, which then belong to another history, the result is not complete.
//   - A result is complete only if its steps lead from Before to After without a hole, other than what Walk cannot find.
//   - Walk makes at most Options.Requests requests, retries included. Both functions end after a bounded time.
//
// The package holds no state and starts no goroutine that outlives a call. It reaches the API server through an Asker alone.
package backfill
