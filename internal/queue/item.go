package queue

// Item is one value in the queue. From Get to Done it belongs to the caller of Get, and no other
// item of its key is handed out.
type Item[T any] struct {
	// Value is the value that was put, unchanged.
	Value T

	key  string
	lane *Lane[T]

	// next is the key's next younger item. The youngest points back to the oldest, so that one map
	// entry per key (to the youngest) suffices to append at one end and to remove at the other.
	next *Item[T]
	// older links the items of a lane that may be handed out, oldest first (Lane.fresh).
	older *Item[T]
	// earlier and later link all items that hold a slot, in the order of admission.
	earlier, later *Item[T]

	bytes  int64
	weight weight
	seq    uint64 // order of admission, over all lanes
	n      uint16 // items of the key, waiting or in flight; maintained on the youngest only
	state  state

	caught bool // catch-up
}

// Key returns the item's key.
func (it *Item[T]) Key() string { return it.key }

// state is the item's phase; it serves to detect a duplicate Done.
type state uint8

const (
	outside state = iota // not yet admitted, or done
	waiting
	inFlight
)

// byAge is a binary heap with the oldest item on top. container/heap would box each item into an
// interface.
type byAge[T any] []*Item[T]

func (b *byAge[T]) push(it *Item[T]) {
	s := append(*b, it)
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].seq < it.seq {
			break
		}
		s[i], i = s[parent], parent
	}
	s[i] = it
	*b = s
}

func (b *byAge[T]) pop() *Item[T] {
	s := *b
	top, last := s[0], s[len(s)-1]
	s[len(s)-1] = nil // the slice outlives the item
	s = s[:len(s)-1]
	if len(s) > 0 {
		i := 0
		for {
			child := 2*i + 1
			if child >= len(s) {
				break
			}
			if child+1 < len(s) && s[child+1].seq < s[child].seq {
				child++
			}
			if last.seq < s[child].seq {
				break
			}
			s[i], i = s[child], child
		}
		s[i] = last
	}
	*b = s
	return top
}
