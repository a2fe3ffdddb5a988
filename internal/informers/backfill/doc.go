// Package backfill recovers the versions of objects inside a gap: a span of history that the watch
// has lost (410) and that LIST may still have. An API server answers LIST with
// resourceVersionMatch=Exact at any resourceVersion that etcd has not compacted, and every revision
// of etcd is a resourceVersion of every resource.
//
// # Walk
//
// A list at To, compared with the last-known objects at From, shows which names have changed. Walk
// follows each of them backward:
//
//	From ──────────────────────────────────────────────────── To
//	Before       Version     Version   (deleted)       After
//	              rv 7        rv 9       rv 12         rv 15
//	               └─ at 8 ────┘ ◀─ 11 exists, 12 not ──┘ ◀─ at 14: nothing, so 15 created it
//
// A question at the resourceVersion right below a version's own returns the version before it, so
// each version costs one request. If no object had the name there, but Before is known to have
// existed, bisection finds the deletion in between.
//
// Walk cannot find an object that was created and deleted between two points where its name was
// free. If a name was not in the scope at From, Walk cannot find changes before the creation of the
// object that has it at To.
//
// # EveryRevision
//
// EveryRevision lists the whole scope at each revision of a short gap. Nothing is missing then, and
// no gap is announced. This also closes the hole after a change of a custom resource's definition:
// the API server then refuses earlier watches of the resource, although no change is lost.
//
// # Invariants
//
//   - A version is one that the API server returned, or the deletion that follows from two of
//     its answers. If the answers contradict the known objects, which then belong to another
//     history, the result is not complete.
//   - A result is complete only if its versions lead from Before to After without a hole, other
//     than those named above.
//   - Walk makes at most Options.Requests requests, retries included, and EveryRevision at most as
//     many as its Budget has. Both end after a bounded time.
//
// The package holds no state and starts no goroutine that outlives a call. It reaches the API
// server only through an Asker.
package backfill
