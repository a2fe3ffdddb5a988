package checkpoint_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// mark is like the mark of an informer: a resourceVersion, and a fingerprint that changes on the
// way to it.
type mark struct{ RV, State uint64 }

func merge(earlier, later mark) mark {
	return mark{max(earlier.RV, later.RV), earlier.State ^ later.State}
}

// model is a ledger that keeps everything.
type model struct {
	at      mark
	entries []modelEntry
	acked   uint64
}

type modelEntry struct {
	mark  mark
	acked bool
	r     *checkpoint.Receipt[mark] // nil: advanced, nobody acknowledges it
}

func (m *model) mark() mark {
	at := m.at
	for _, e := range m.entries {
		if !e.acked {
			break
		}
		at = merge(at, e.mark)
	}
	return at
}

func (m *model) outstanding() (out []int) {
	for i, e := range m.entries {
		if !e.acked {
			out = append(out, i)
		}
	}
	return out
}

// The mark is the merge of all entries before the first unacknowledged one, in whatever order
// acknowledgements arrive.
func TestLedgerPassesNothingOutstanding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{at: mark{RV: 100}}
		l := checkpoint.NewLedger(m.at, merge)
		next := func() mark {
			return mark{RV: 101 + uint64(len(m.entries)), State: rapid.Uint64().Draw(t, "state")}
		}
		sealed, told := false, 0
		ack := func(i int) {
			m.entries[i].r.Acked(nil)
			m.entries[i].acked = true
			m.acked++
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				if sealed {
					t.Skip("nothing is added any more")
				}
				at := next()
				m.entries = append(m.entries, modelEntry{mark: at, r: l.Add(at)})
			},
			"advance": func(*rapid.T) {
				at := next()
				l.Advance(at)
				m.entries = append(m.entries, modelEntry{mark: at, acked: true})
			},
			"ack": func(t *rapid.T) {
				open := m.outstanding()
				if len(open) == 0 {
					t.Skip("nothing is outstanding")
				}
				ack(rapid.SampledFrom(open).Draw(t, "which"))
			},
			"withdraw": func(t *rapid.T) {
				if sealed {
					t.Skip("nothing is added any more")
				}
				l.Add(next()).Withdraw()
			},
			"seal": func(t *rapid.T) {
				if sealed || !rapid.Bool().Draw(t, "now") || len(m.entries) < 8 {
					t.Skip("sealed, or too early: few entries show little of the order")
				}
				sealed = true
				l.Seal(func() { told++ })
			},
			"": func(t *rapid.T) {
				got, acked := l.Mark()
				if got != m.mark() {
					t.Fatalf("mark is %v, want %v", got, m.mark())
				}
				if acked != m.acked {
					t.Fatalf("acked is %d, want %d", acked, m.acked)
				}
				if open := len(m.outstanding()); l.Outstanding() != open {
					t.Fatalf("outstanding is %d, want %d", l.Outstanding(), open)
				}
				want := 0
				if sealed && len(m.outstanding()) == 0 {
					want = 1
				}
				if told != want {
					t.Fatalf("seal was told %d times, want %d", told, want)
				}
			},
		})
	})
}

// A receipt that a caller keeps must not retain all later ones.
func TestLedgerHoldsOnlyWhatIsOutstanding(t *testing.T) {
	l := checkpoint.NewLedger(mark{}, merge)
	first := l.Add(mark{RV: 1})
	for rv := uint64(2); rv <= 1000; rv++ {
		l.Add(mark{RV: rv}).Acked(nil)
	}
	if got := l.Outstanding(); got != 1 {
		t.Errorf("outstanding is %d, want 1", got)
	}
	if got, _ := l.Mark(); got != (mark{}) {
		t.Errorf("the mark is %v although the first entry is outstanding", got)
	}
	first.Acked(nil)
	got, acked := l.Mark()
	if diff := cmp.Diff(mark{RV: 1000}, got); diff != "" || acked != 1000 {
		t.Errorf("acked %d, mark (-want +got):\n%s", acked, diff)
	}
}

// Many workers acknowledge while the informer adds; the mark only grows, and the seal is reported
// once.
func TestLedgerFromManySides(t *testing.T) {
	l := checkpoint.NewLedger(mark{}, merge)
	const n = 5000
	receipts := make(chan *checkpoint.Receipt[mark], 64) // if full, the adder waits
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			var held []*checkpoint.Receipt[mark]
			for r := range receipts {
				held = append(held, r)
				if len(held) == 7 {
					slices.Reverse(held)
					for _, r := range held {
						r.Acked(nil)
					}
					held = nil
				}
			}
			for _, r := range held {
				r.Acked(nil)
			}
		})
	}
	var last uint64
	for rv := uint64(1); rv <= n; rv++ {
		receipts <- l.Add(mark{RV: rv})
		if at, _ := l.Mark(); at.RV < last {
			t.Errorf("the mark went back from %d to %d", last, at.RV)
		} else {
			last = at.RV
		}
	}
	done := make(chan struct{})
	l.Seal(func() { close(done) })
	close(receipts)
	workers.Wait()
	<-done
	if at, acked := l.Mark(); at.RV != n || acked != n {
		t.Errorf("mark %d after %d acknowledgements, want %d after %d", at.RV, acked, n, n)
	}
}

func BenchmarkLedger(b *testing.B) {
	for _, window := range []int{1, 256, 100_000} {
		b.Run(map[int]string{1: "one", 256: "workers", 100_000: "queue"}[window], func(b *testing.B) {
			b.ReportAllocs()
			l := checkpoint.NewLedger(mark{}, merge)
			open := make([]*checkpoint.Receipt[mark], window)
			for i := range b.N {
				at := i * 7919 % window // out of order
				if r := open[at]; r != nil {
					r.Acked(nil)
				}
				open[at] = l.Add(mark{RV: uint64(i)})
			}
		})
	}
}
