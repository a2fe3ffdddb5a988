// Package queue is the only buffer between the informers and the bus. It is bounded in events and
// in bytes. When it is full, Put blocks, which blocks the informer, its watch, and finally the API
// server's TCP stream.
//
// An item enters by Put or TryPut through a [Lane], is handed out by [Queue.Get], and leaves with
// [Queue.Done] after the bus has acknowledged it. It holds its slot and its bytes all that time.
//
// # Invariants
//
//   - The queue holds at most Options.Events items and Options.Bytes bytes, with one exception: an
//     item larger than the byte bound is admitted when the queue is empty, and is then alone until
//     it is done.
//   - The items of a key leave in the order in which they entered, and at most one of them is in
//     flight, whichever lanes they used. With at most one unacknowledged record per object, no
//     retry can reorder them on a bus.
//   - Each admitted item is handed out, once. Nothing is merged, replaced or dropped.
//   - A key holds at most 256 items. Then a Put for it waits, and does not block others.
//   - At most Options.InFlightBytes bytes are in flight, as WeighBy estimates them, with two
//     exceptions. An item larger than the bound is handed out when nothing is in flight, and is
//     then alone in flight. Resize may exceed the bound, after which Get waits until it holds
//     again. Only Get waits for room in flight, so no two callers can wait for each other.
//   - The first item in line without room in flight keeps its place. Later lanes may use at most
//     the bound less the size of that item, so it waits only for items that were in flight before
//     it. If it is larger than the bound, nothing is served meanwhile.
//   - A lane holds at most twice the remaining free part of each bound, including Options.InFlight:
//     two thirds, if it is alone. A lane whose items are never acknowledged therefore blocks no
//     other lane. k such lanes leave one part in 2k+1, or one in 3^k if each filled up before the
//     next one began. With the usual bounds, about six such lanes that fill up one after the other
//     leave room to the others. A lane that holds nothing may put an item of any size, and a lane
//     with nothing in flight may have one item in flight, as long as the bound allows one more.
//   - A suspended item waits for another attempt. It has no bytes in flight, but it keeps its key
//     and counts in InFlight. The shares thus bound how many items of a lane are encoded
//     repeatedly.
//   - Waiting Puts are admitted by order of arrival, except for the two rules above. A smaller Put
//     never overtakes one for which the bounds have no room: that one waits for what is held now,
//     not for later items. An item that needs the whole queue therefore blocks all other lanes
//     until all items in flight are acknowledged. An item larger than the room that stuck lanes
//     leave blocks them until the stuck lanes resume.
//   - Lanes with an item to hand out are served in turn, one item each. Lanes that have too many
//     items or bytes in flight are skipped and keep their place. In its turn a lane hands out the
//     oldest item whose key has none in flight.
//   - Catch-up (TryPut) has half of both bounds, and the rule of twice the free part applies to
//     that half too. It is admitted only while no Put waits for room, and no Put of its own lane
//     waits for the lane to hold less. It therefore never takes a slot that a live delta waits for.
//   - A call ends with its context and leaves no state behind. If the context ends at the very
//     moment in which a waiting call is served, either the call succeeds or it has no effect.
//
// The package starts no goroutines. All state is under one mutex, and each freed slot wakes only
// the caller that gets it. The package never inspects the values, and never retries, drops or times
// out anything: an item without Done keeps its slot, and blocks its key's successors.
//
// A queue keeps, after a peak, the memory of its key index (about 50 bytes for each key that was
// held at the same time), but not that of the items.
package queue
