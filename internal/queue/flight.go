package queue

// flight counts the bytes in flight of a queue and admits items to it.
type flight struct {
	bound int64 // 0: no bound
	bytes int64 // in flight

	// The first item in line without room waits for the items that were in flight before it.
	// Meanwhile later lanes share the room that this item will leave free. They do not delay it,
	// and they are served even if it waits for a stuck lane. first is the number of that item
	// (Item.seq), overtaking the bytes in flight that overtook it.
	first      uint64
	overtaking int64
}

// weight is what an item counts for while it is in flight.
type weight struct {
	bytes    int64  // as estimated, or as set by Resize
	overtook uint64 // flight.first when the item overtook that one; 0: it overtook none
}

// hasRoom reports whether there is room for an item of that size. If nothing is in flight, there is
// room for any item.
func (f *flight) hasRoom(bytes int64) bool {
	return f.bound == 0 || f.bytes == 0 || bytes <= f.bound-f.bytes
}

// isOverShare reports whether a lane with flying bytes in flight would have more than perFree times
// the room that remains free after an item of that size.
func (f *flight) isOverShare(flying, bytes int64) bool {
	free := f.bound - f.bytes - bytes
	return f.bound > 0 && (free < 0 || flying+bytes > perFree*free)
}

// canOvertake reports whether an item of that size may be handed out while the first in line, of
// size first, waits for room.
func (f *flight) canOvertake(bytes, first int64) bool {
	return bytes <= f.bound-f.bytes && f.overtaking+bytes <= f.bound-first
}

// noteWaiting records the item that is the first in line and waits for room.
func (f *flight) noteWaiting(item uint64) {
	if f.first != item {
		f.first, f.overtaking = item, 0
	}
}

func (f *flight) start(it *weight, lane *int64, overtakes bool) {
	f.bytes += it.bytes
	*lane += it.bytes
	it.overtook = 0
	if overtakes {
		it.overtook = f.first
		f.overtaking += it.bytes
	}
}

func (f *flight) resize(it *weight, lane *int64, bytes int64) {
	more := bytes - it.bytes
	it.bytes = bytes
	f.bytes += more
	*lane += more
	if it.overtook != 0 && it.overtook == f.first {
		f.overtaking += more
	}
}

func (f *flight) finish(it *weight, lane *int64) {
	f.resize(it, lane, 0)
	it.overtook = 0
}

// nextLane returns the lane to serve, its predecessor in line, and whether its item overtakes the
// first in line; nil if no item may be handed out.
//
//  1. A lane that has too many items or bytes in flight is skipped. A lane with nothing in flight
//     is skipped only if all are in use.
//  2. The first of the remaining lanes gets the room for its item. If there is not enough, the lane
//     keeps its place and waits.
//  3. Later lanes may then use the room that this item will leave free.
//
// A lane that waits in step 2 has no bytes in flight: otherwise item and lane would fit into the
// bound together, or step 1 would have skipped the lane.
func (q *Queue[T]) nextLane() (l, before *Lane[T], overtakes bool) {
	var first *Item[T]
	for l = q.ready; l != nil; before, l = l, l.next {
		if first != nil && !q.flight.canOvertake(1, first.weight.bytes) {
			break
		}
		if l.isOverFlightShare() {
			continue
		}
		it := l.peek()
		switch {
		case l.flightBytes > 0 && q.flight.isOverShare(l.flightBytes, it.weight.bytes):
		case first != nil:
			if q.flight.canOvertake(it.weight.bytes, first.weight.bytes) {
				return l, before, true
			}
		case q.flight.hasRoom(it.weight.bytes):
			return l, before, false
		default:
			first = it
			q.flight.noteWaiting(it.seq)
		}
	}
	return nil, nil, false
}

// weightOf returns the estimated bytes in flight of v before it is encoded.
func (q *Queue[T]) weightOf(v T) int64 { return max(q.weigh(v), 0) }
