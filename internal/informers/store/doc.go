// Package store holds the state of one scope: its objects, pending deltas, snapshot, history number
// and position. A Store compares each watch event (Apply) and each list (BeginList, Load or
// Compare, EndList) with the last-known objects, and puts the deltas into its Lane. It asks an API
// server only the two questions of Selector. It returns no error that loses an event: a call
// blocks, or its context ends.
//
// # Pending deltas
//
// A list makes deltas pending. These are the reads of a snapshot, or, for each key that differs,
// the versions from the version sent last to the listed one. A key that has both sends its read
// first. The cursor sends them in key order, with the room that live deltas leave (Lane.TryPut). A
// live delta of a key with pending deltas sends these first. Gap, Changes, AddVersions and
// AddAllVersions recover versions inside a gap, before its announcement.
//
// # Gate
//
// No delta passes the stream event that announces it (gap, scope.started, snapshot.started) before
// the bus has acknowledged that event. The queue of notices has these events in order. While it is
// not empty, the gate is closed: Apply blocks, and the cursor sends nothing. Once it is empty, the
// cursor opens the gate.
//
// # Position
//
// A ledger of marks follows acknowledgements in any order. The position passes a watch event once
// all of its deltas are acknowledged. It passes a gap once all deltas that the later list made
// pending are (barrier). A snapshot has its own ledger, with the key up to which its reads are
// acknowledged. Until the store has its own position, the checkpoint of the previous run is the
// position.
//
// # Snapshots
//
// The phase of a snapshot (snapshotphase.go) says whether changes wait for its start. A snapshot of
// a list is never given up. One that was asked for is, until the bus has its start: then the
// checkpoint does not say that the next run continues it.
//
// # Goroutines and locks
//
// Run is the schedule of snapshots, and starts the cursor, which announces, sends pending deltas
// and begins snapshots. Both end with the context of Run. One other goroutine, the owner, calls
// Apply and the methods of lists, one at a time. All may call the others.
//
// There is one lock, mu, held for short times. Lane.TryPut, metrics and the functions of Options
// without a context are called with mu held and must not call the store. Methods whose names end in
// Locked, or whose comment says so, must be called with mu held. The owner does not hold it while
// it puts deltas into the lane or asks an API server. Store.applying is true then, and no snapshot
// of last-known objects begins.
package store
