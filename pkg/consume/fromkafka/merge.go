package fromkafka

import (
	"cmp"
	"strings"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// With Query.ByTime, each partition has at most one batch in hand:
//
//	partition   in hand        next
//	0           10:00 10:02    10:00 is the earliest, and the others have a record or have ended:
//	1           10:01          it is returned. After 10:01, partition 1 must send a batch, or end,
//	2           (has ended)    before 10:02 is returned.
//
// So a partition that has no leader holds up the others. Its end is known from the beginning: one
// without records has ended at once.

// kafkaHand is a batch with at least one record that was not returned.
type kafkaHand struct {
	*kafkaBatch

	head *consume.Event // of its first record
}

// hold takes a batch into hand.
func (r *kafkaReader) hold(b *kafkaBatch) {
	if len(b.records) == 0 {
		r.pass(b, b.next)
		r.release(b.of)
		return
	}
	if r.hands == nil {
		r.hands = map[*kafkaPartition]*kafkaHand{}
	}
	r.hands[b.of] = &kafkaHand{kafkaBatch: b}
}

// release lets the fetcher of a partition hand over the next batch.
func (r *kafkaReader) release(p *kafkaPartition) {
	delete(r.hands, p)
	p.fetcher.turn <- struct{}{}
}

// takeEarliest returns the earliest event in hand. Neither event nor error: it is not known yet
// which one that is.
func (r *kafkaReader) takeEarliest() (*consume.Event, error) {
	if len(r.hands) == 0 {
		return nil, nil
	}
	for _, h := range r.hands {
		if err := r.look(h); err != nil {
			return nil, err
		}
	}
	if !r.every(func(p *kafkaPartition) bool { return p.ended || r.hands[p] != nil }) {
		return nil, nil
	}
	var first *kafkaHand
	for _, h := range r.hands {
		if first == nil || h.precedes(first) {
			first = h
		}
	}
	if first == nil {
		return nil, nil // they were tombstones
	}
	e := first.head
	r.next(first)
	return e, nil
}

// look reads the first record of a hand that is an event. A hand without one is released.
func (r *kafkaReader) look(h *kafkaHand) error {
	for h.head == nil && len(h.records) > 0 {
		e, err := h.first()
		if e != nil {
			h.head = e
			return nil
		}
		r.next(h)
		if err != nil {
			return err
		}
	}
	return nil
}

// next drops the first record of a hand.
func (r *kafkaReader) next(h *kafkaHand) {
	h.head = nil
	r.drop(h.kafkaBatch)
	if len(h.records) == 0 {
		r.release(h.of)
	}
}

// precedes reports whether the event of h comes first.
func (h *kafkaHand) precedes(o *kafkaHand) bool {
	return cmp.Or(h.head.Time.Compare(o.head.Time), strings.Compare(h.log.Name, o.log.Name),
		cmp.Compare(h.log.Partition, o.log.Partition)) < 0
}

// fetchSize returns the limit of a fetch, in bytes.
func (r *kafkaReader) fetchSize() int64 {
	if !r.q.ByTime {
		return fetchBytes
	}
	return max(leastFetch, min(fetchBytes, mergeBytes/max(r.sharing.Load(), 1)))
}

// Leave implements Leaver. A reader of a group ignores it: the group assigns its partitions.
func (r *kafkaReader) Leave(log consume.Log) {
	r.state.Lock()
	defer r.state.Unlock()
	p := r.partitions[idOf(log)]
	if p == nil || p.left || p.fetcher.stop == nil {
		return
	}
	p.left, p.ended = true, true
	p.fetcher.stop()
	delete(r.hands, p)
	if r.pending != nil && r.pending.of == p {
		r.pending = nil
	}
}
