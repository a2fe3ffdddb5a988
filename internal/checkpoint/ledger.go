package checkpoint

import (
	"sync"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Ledger tells up to which mark everything is acknowledged, whatever the order of the acknowledgements. It holds what is
// outstanding and nothing else: what is acknowledged behind something outstanding is merged into the entry in front of it.
// It is safe for concurrent use.
type Ledger[M any] struct {
	merge func(earlier, later M) M

	mu          sync.Mutex
	mark        M // up to the first entry
	first, last *Receipt[M]
	outstanding int
	acked       uint64
	sealed      func() // called once the ledger is empty; nil: not sealed, or called
	notify      func() // called after each acknowledgement; nil: nobody is
}

// Receipt is an entry that is outstanding. It is an object.Acker, to be told once.
type Receipt[M any] struct {
	ledger     *Ledger[M]
	prev, next *Receipt[M]
	mark       M // reached when this entry, and all before it, are acknowledged
}

// NewLedger returns a ledger at mark. merge makes one mark of two that follow each other; it is called under a lock.
func NewLedger[M any](mark M, merge func(earlier, later M) M) *Ledger[M] {
	return &Ledger[M]{mark: mark, merge: merge}
}

// Add appends an entry. The ledger does not pass it before the receipt is told.
func (l *Ledger[M]) Add(mark M) *Receipt[M] {
	r := &Receipt[M]{ledger: l, mark: mark}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.first = r
	} else {
		l.last.next, r.prev = r, l.last
	}
	l.last = r
	l.outstanding++
	return r
}

// Advance notes a mark that nobody has to acknowledge, behind all that was added.
func (l *Ledger[M]) Advance(mark M) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.mark = l.merge(l.mark, mark)
	} else {
		l.last.mark = l.merge(l.last.mark, mark)
	}
}

// Acked implements object.Acker.
func (r *Receipt[M]) Acked(*object.Delta) {
	l := r.ledger
	l.mu.Lock()
	if r.prev == nil {
		l.mark = l.merge(l.mark, r.mark)
	} else {
		r.prev.mark = l.merge(r.prev.mark, r.mark)
	}
	r.unlink()
	l.acked++
	done, notify := l.done(), l.notify
	l.mu.Unlock()
	done()
	if notify != nil {
		notify()
	}
}

// Withdraw takes the entry out as if it had not been added: it will not be acknowledged, and its mark is not reached. It is
// the last one that was added, and nothing was advanced since: those marks would be gone with it.
func (r *Receipt[M]) Withdraw() {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.unlink()
}

// unlink takes the entry out. The caller holds mu.
func (r *Receipt[M]) unlink() {
	l := r.ledger
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil // whoever keeps the receipt must not keep the others
	l.outstanding--
}

// Notify has f called after each acknowledgement, without a lock held. f must not block.
func (l *Ledger[M]) Notify(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notify = f
}

// Seal has f called once nothing is outstanding, at once if that is so. Nothing is added from here on. f must not block: it
// is called by whoever brings the last acknowledgement.
func (l *Ledger[M]) Seal(f func()) {
	l.mu.Lock()
	l.sealed = f
	done := l.done()
	l.mu.Unlock()
	done()
}

// done is what to call without the lock. The caller holds it.
func (l *Ledger[M]) done() func() {
	if l.sealed == nil || l.outstanding > 0 {
		return func() {}
	}
	f := l.sealed
	l.sealed = nil
	return f
}

// Mark is the mark up to which everything is acknowledged, and how many acknowledgements there have been.
func (l *Ledger[M]) Mark() (mark M, acked uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark, l.acked
}

// Oldest is the mark of the first entry that is not acknowledged; false: all are.
func (l *Ledger[M]) Oldest() (mark M, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		return mark, false
	}
	return l.first.mark, true
}

// Outstanding is how many entries are not acknowledged.
func (l *Ledger[M]) Outstanding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outstanding
}
