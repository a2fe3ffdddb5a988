package checkpoint

import (
	"sync"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Ledger computes the mark up to which every entry is acknowledged, in whatever order
// acknowledgements arrive. It holds only outstanding entries: an entry that is acknowledged after
// an outstanding one is merged into its predecessor. It is safe for concurrent use.
type Ledger[M any] struct {
	merge func(earlier, later M) M

	mu          sync.Mutex
	mark        M // up to the first entry
	first, last *Receipt[M]
	outstanding int
	acked       uint64
	sealed      func() // called once the ledger is empty; nil if not sealed, or already called
	notify      func() // called after each acknowledgement, unless nil
}

// Receipt is an outstanding entry. It is an object.Acker; Acked is called once.
type Receipt[M any] struct {
	ledger     *Ledger[M]
	prev, next *Receipt[M]
	mark       M // reached when this entry, and all before it, are acknowledged
}

// NewLedger returns a ledger at mark. merge combines two consecutive marks; it is called under a
// lock.
func NewLedger[M any](mark M, merge func(earlier, later M) M) *Ledger[M] {
	return &Ledger[M]{mark: mark, merge: merge}
}

// Add appends an entry. The ledger does not pass it before its receipt is acknowledged.
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

// Advance records a mark after all entries that needs no acknowledgement.
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

// Withdraw removes the entry as if it had not been added. It must be the last entry, and Advance
// must not have been called since: those marks would be lost with it.
func (r *Receipt[M]) Withdraw() {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.unlink()
}

// unlink removes the entry. The caller holds mu.
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
	r.prev, r.next = nil, nil // a caller that keeps the receipt must not keep the others alive
	l.outstanding--
}

// Notify sets the function that is called after each acknowledgement, without a lock held. f must
// not block.
func (l *Ledger[M]) Notify(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notify = f
}

// Seal calls f as soon as no entry is outstanding, which may be at once. Add must not be called any
// more. f must not block: it runs in the goroutine of the last acknowledgement.
func (l *Ledger[M]) Seal(f func()) {
	l.mu.Lock()
	l.sealed = f
	done := l.done()
	l.mu.Unlock()
	done()
}

// done returns the function to call after unlocking. The caller holds mu.
func (l *Ledger[M]) done() func() {
	if l.sealed == nil || l.outstanding > 0 {
		return func() {}
	}
	f := l.sealed
	l.sealed = nil
	return f
}

// Mark returns the mark up to which every entry is acknowledged, and the number of
// acknowledgements.
func (l *Ledger[M]) Mark() (mark M, acked uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark, l.acked
}

// Oldest returns the mark of the first outstanding entry; false if there is none.
func (l *Ledger[M]) Oldest() (mark M, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		return mark, false
	}
	return l.first.mark, true
}

// Outstanding returns the number of entries that are not acknowledged.
func (l *Ledger[M]) Outstanding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outstanding
}
