// Package store holds what is known of one scope and turns it into deltas: the last-known objects, the deltas that a list made pending,
// the snapshot that is being sent, the history number and the position from which a restart resumes.
//
// A Store compares each watch event (Apply) and each list (BeginList, Load or Compare, EndList) with the last-known objects, forms deltas and
// puts them into the Lane of its scope. It asks an API server nothing but the two questions of Selector. It returns no error that loses
// an event: a call blocks, or its context ends.
//
// # Pending deltas
//
// A list makes deltas pending: reads of a snapshot, or for each key that differs the steps from the version that was sent last to the one that
// the list shows. The cursor sends them in key order, with the room that live deltas leave (Lane.TryPut). A live delta of a key with pending
// deltas sends these first. Gap, Changes, AddSteps and AddAllSteps let the scope recover versions inside a gap before it is announced.
//
// # Gate
//
// No delta passes the stream event that announces it (gap, snapshot.started) before the bus has acknowledged that event. Notices hold these
// events in order. While there is one, the gate is closed: Apply blocks, and the cursor sends nothing. A list and a replaced log close the gate; the
// cursor opens it.
//
// # Position
//
// A ledger of marks follows acknowledgements in whatever order they come. The position passes a watch event once all of its deltas
// are acknowledged, and a gap once everything that the list behind it made pending is (barrier). A snapshot has a ledger of its own, with the key up
// to which its reads are acknowledged. Until the store has a position of its own, the checkpoint of the previous run stays the position.
//
// # Goroutines and locks
//
// Run starts the cursor, which announces, sends pending deltas and begins snapshots, and the one that has snapshots taken by time. Both end with
// its context. One other goroutine, the owner, calls Apply and the methods of lists; it never does so twice at a time. All other methods
// are for any goroutine.
//
// There is one lock, mu, which is held for short times. Lane.TryPut, metrics and the functions of Options that do not take a context are called under
// it and must not call the store. Methods whose names end in Locked, and those whose comment says so, need mu. The owner does not hold it while it
// puts deltas into the lane, or asks an API server: Store.applying is true then, and no snapshot of the last-known objects begins.
package store
