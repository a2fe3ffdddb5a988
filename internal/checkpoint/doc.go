// Package checkpoint remembers how far each informer is: the resourceVersion below which the bus has acknowledged every
// delta, and what a restart needs to go on from there.
//
// A Ledger tells how far an informer is, whatever the order of the acknowledgements. A Keeper asks all informers for that,
// saves it, and knows what the last run left. A Store is where it is kept: a file (OpenFile) or a ConfigMap (NewConfigMap).
// What is kept is a Document: JSON that people can read, with a seal that tells damage.
//
// What holds:
//
//   - A checkpoint never passes a delta that is not acknowledged: positions are asked for when they are saved, and a ledger
//     does not pass what is outstanding. It may be behind, by what was acknowledged since: that is sent again, with the same
//     ids.
//   - It is replaced whole or not at all, whenever the process or the machine ends. Of a file that holds where a rename is
//     atomic and fsync means it; of a ConfigMap, where etcd does.
//   - One agent writes it. A file is locked; a ConfigMap is written on condition that nobody else has written it. An agent
//     whose condition fails finds out whether it met a write of its own that had got no answer, or a label that somebody put
//     on the object, and goes on; else it ends. Two agents that wrote in turns would each take the other's positions back.
//   - A checkpoint of another cluster, bus or format, or one that is damaged, is an error that says where it is and what to
//     do. Nothing is guessed, and nothing overwritten.
//
// It starts no goroutine. Keeper.Run is one of the caller's; Flush saves in the goroutine of whoever calls it, one at a time.
//
// It never reads or writes objects, and holds nothing of them but names (the cursor of a snapshot).
package checkpoint
