package informers_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
)

// started returns which of the recorded starts of snapshots are initial, in their order.
func (r *recorder) started() (out []bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deltas {
		if d.Stream != nil && d.Stream.Kind == object.SnapshotStarted {
			out = append(out, d.Stream.Initial)
		}
	}
	return out
}

// startsAre checks which of the recorded starts of snapshots are initial.
func (l *life) startsAre(t *testing.T, want ...bool) {
	t.Helper()
	if got := l.started(); !slices.Equal(got, want) {
		t.Errorf("the starts of snapshots are initial: %t, want %t", got, want)
	}
}

// The first snapshot of a run that has no position of a scope is marked as initial. No other
// snapshot is: readers of the record treat changes before such a snapshot as lost.
func TestInitialSnapshotSaysSo(t *testing.T) {
	whole := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
	always := func(o *informers.Options, _ *recorder) { o.Snapshot = informer.SnapshotAlways }
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		first := live(t, s, m, nil)
		first.wait(t, whole...)
		eventually(t, "a snapshot on demand", func() bool {
			started, err := first.set.Snapshot(t.Context(), "configmaps", "")
			return err == nil && !started[0].Running
		})
		first.wait(t, slices.Concat(whole, whole)...)
		first.startsAre(t, true, false)
		_ = m.Flush(t.Context())
		first.end()

		again := live(t, s, m, always)
		again.wait(t, whole...)
		again.startsAre(t, false)
		again.end()

		lost := live(t, s, newMemory(), nil)
		lost.wait(t, whole...)
		lost.startsAre(t, true)
		lost.end()

		told := live(t, s, newMemory(), func(o *informers.Options, _ *recorder) {
			o.LastEvent = func(context.Context, *object.Resource) (informer.LastEvent, bool, error) {
				return informer.LastEvent{Scope: "configmaps", ResourceVersion: 1}, true, nil
			}
		})
		told.wait(t, slices.Concat([]string{"gap 0 checkpoint-lost"}, whole)...)
		told.startsAre(t, false)
	})
}

// If an agent ends before its first snapshot is complete on the bus, the next snapshot is initial
// too: the bus may not have the first start.
func TestInitialSnapshotIsStartedAgain(t *testing.T) {
	for name, compacted := range map[string]bool{"continued": false, "compacted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "1", nil)
				first := live(t, s, m, func(_ *informers.Options, r *recorder) {
					r.holds = func(d *object.Delta) bool {
						return d.Stream != nil && d.Stream.Kind != object.ScopeStarted
					}
				})
				first.wait(t, "snapshot.started 1")
				_ = m.Flush(t.Context())
				first.end()
				s.put("a", "2", nil)
				want := []string{"snapshot.started 1", "r a uid-1 -→1", "u a uid-1 1→2", "snapshot.completed 1"}
				if compacted {
					s.compact()
					want = []string{"gap 0 compacted", "snapshot.started 1", "r a uid-1 -→2", "snapshot.completed 1"}
				}
				second := live(t, s, m, nil)
				second.waitPerName(t, want...)
				second.startsAre(t, true)
				eventually(t, "a checkpoint of a scope whose first snapshot is complete", func() bool {
					_ = m.Flush(t.Context())
					c, ok := m.saved("configmaps")
					return ok && !c.Initial
				})
			})
		})
	}
}

// A snapshot whose start the bus has not acknowledged begins as a new one: readers of the log do
// not know it. Otherwise it is continued. The reads of an object may be on the bus then, and its
// changes.
func TestStartThatTheBusMayLackIsSentAsNew(t *testing.T) {
	for name, c := range map[string]struct {
		holds func(*object.Delta) bool
		want  bool
	}{
		"the bus has no start": {func(d *object.Delta) bool {
			return d.Stream != nil && d.Stream.Kind != object.ScopeStarted
		}, false},
		"the bus has its start": {func(d *object.Delta) bool {
			return d.Stream == nil || d.Stream.Kind == object.SnapshotCompleted
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "1", nil)
				s.put("b", "1", nil)
				for run := range 3 { // also a run that began with such a checkpoint
					l := live(t, s, m, func(_ *informers.Options, r *recorder) { r.holds = c.holds })
					eventually(t, "the start of the snapshot", func() bool { return l.has("snapshot.started 2") })
					synctest.Wait()
					_ = m.Flush(t.Context())
					l.end()
					if got := l.continues(t); got != (c.want && run > 0) {
						t.Errorf("run %d: the start is continued: %t, want %t", run, got, c.want && run > 0)
					}
				}
				last := live(t, s, m, nil)
				last.waitPerName(t, "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2")
				if got := last.continues(t); got != c.want {
					t.Errorf("the start is continued: %t, want %t", got, c.want)
				}
			})
		})
	}
}

// continues reports whether the start of the snapshot that a run has sent continues one.
func (r *recorder) continues(t *testing.T) bool {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deltas {
		if d.Stream != nil && d.Stream.Kind == object.SnapshotStarted {
			return d.Stream.Continued
		}
	}
	t.Error("no snapshot was started")
	return false
}
