// Package checkpoint stores the position of each informer: the resourceVersion up to which the bus
// has acknowledged every delta, and the state that a restart needs to resume there.
//
// A Ledger computes the position of one informer, in whatever order acknowledgements arrive. A
// Keeper collects the positions of all informers, saves them, and returns those of the last run. A
// Store holds the result in a file (OpenFile) or a ConfigMap (NewConfigMap). The format is a
// Document: readable JSON with a checksum.
//
// Invariants:
//
//   - A checkpoint never passes a delta that is not acknowledged: positions are read at the time of
//     the save, and a ledger does not pass an outstanding entry. Deltas acknowledged after the save
//     are sent again after a crash, with the same ids.
//   - A save replaces the whole checkpoint or nothing, even if the process or the machine fails.
//     For a file this needs an atomic rename and an effective fsync; for a ConfigMap, etcd provides
//     it.
//   - One agent writes it. A file is locked; a ConfigMap is written with a precondition. An agent
//     whose precondition fails continues if the other write was its own (unanswered) or changed
//     only labels; otherwise it exits. Two alternating writers would each reset the other's
//     positions.
//   - A checkpoint that is damaged, or belongs to another cluster, bus or format, is an error that
//     names the place and the fix. The agent never guesses, and never overwrites it.
//
// The package starts no goroutine. The caller runs Keeper.Run; Flush saves in the caller's
// goroutine, one save at a time.
//
// It stores no object data except names (the cursor of a snapshot).
package checkpoint
