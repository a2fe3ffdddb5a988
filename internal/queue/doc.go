// Package queue is the only buffer between the informers and the bus. It is bounded in events and in bytes; when it is
// full, Put blocks, and with it the informer, its watch, and in the end the API server's TCP stream.
//
// An item comes in by Put or TryPut through a [Lane], is handed out by [Queue.Get], and leaves with [Queue.Done], once
// the bus has acknowledged it. It holds its slot and its bytes all that time.
//
// # Invariants
//
//   - At most Options.Events items and Options.Bytes bytes are held. One exception: an item larger than the byte bound is
//     taken when the queue is empty, and is then alone in it until it is done.
//   - The items of a key leave in the order in which they came, and two of them are never in flight at a time, whichever
//     lanes they came through. With at most one unacknowledged record per object, no retry can reorder them on a bus.
//   - What was taken is handed out, once. Nothing is merged, replaced or dropped.
//   - A key holds at most 256 items. A Put for it then waits, and lets all others pass.
//   - At most Options.InFlightBytes bytes are in flight, as WeighBy estimates them. Two exceptions: an item that is larger than the
//     bound is handed out when nothing is in flight, and is then alone in flight; and Resize may exceed the bound, after which Get waits until
//     it holds again. Get is the only place where room in flight is waited for, so no two callers can wait for each other.
//   - The first item in line for which there is no room in flight keeps its place. Later lanes are served with no more than the bound
//     less the size of that item, so it waits only for items that were in flight before it. If it is larger than the bound, nothing
//     is served meanwhile.
//   - A lane holds no more than twice what is left free of each bound, Options.InFlight included: two thirds, if it is alone. So a
//     lane whose items do not come back stops no other: k of them leave one part in 2k+1, or, where each has filled up before
//     the next one began, one in 3^k. So with the usual bounds about six leave something to the
//     rest, if they fill up one after the other. A lane that holds nothing may put an item of any size, and one with nothing in flight
//     may have one item in flight, as long as the bound allows one more.
//   - A suspended item waits for another attempt. It has no bytes in flight; it keeps its key and counts in InFlight, so the shares bound
//     how many items of a lane are encoded again and again.
//   - Puts that wait are let in by order of arrival, but for the two rules above. One that the bounds have no room for is
//     not overtaken by a smaller one: it waits for what is held now, not for what comes later. So an item that needs the
//     whole queue holds all other lanes up until what is in flight has been acknowledged, and one that is larger than what
//     stuck lanes leave until they go on.
//   - Lanes with an item to hand out are served in turn, one item each, except for those that have too many items or
//     bytes in flight: these keep their place. Within its turn a lane gives the oldest item whose key has none in flight.
//   - Catch-up (TryPut) has half of both bounds, and the rule of twice what is free holds in that half too. It goes in only while
//     no Put waits for room, nor one of its own lane for the lane to hold less, so it never takes a slot that a live delta is waiting
//     for.
//   - A call ends with its context and leaves nothing behind. Should the context end at the very moment in which a waiting
//     call is served, then either the call succeeds or nothing has happened.
//
// The package starts no goroutines; all state is under one mutex, and each freed slot wakes the one caller it goes to. It
// never looks at the values it carries, and never retries, drops or times anything out: an item whose Done never comes
// keeps its slot, and its key's successors wait.
//
// A queue outlives its content: after a peak it keeps the memory of its key index (about 50 bytes for each key that was
// held at the same time), not that of the items.
package queue
