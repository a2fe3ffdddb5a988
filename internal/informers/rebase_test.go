package informers_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
)

// replaceable is a log that can be replaced.
type replaceable struct {
	number atomic.Uint64
}

func (l *replaceable) use(o *informers.Options, _ *recorder) {
	o.Replaced = func(*object.Resource, string) (uint64, time.Time) {
		return l.number.Load(), time.Unix(900_000_000, 0)
	}
}

func (l *replaceable) replace(set *informers.Manager) {
	l.number.Add(1)
	set.Rebase()
}

// If the log is replaced while the agent runs, the agent sends a gap from the beginning, and a
// snapshot.
func TestLogIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		log := new(replaceable)
		s.put("a", "1", nil)
		first := live(t, s, m, log.use)
		want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		first.wait(t, want...)
		last := s.put("b", "1", nil)
		want = append(want, "c b uid-2 -→1")
		first.wait(t, want...)
		log.replace(first.set)
		want = append(want, "gap 0 checkpoint-lost", "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1",
			"snapshot.completed 2")
		first.wait(t, want...)
		first.mu.Lock()
		if g := first.deltas[4].Stream; g.From != 1 || g.To != last.rv || g.Recovered || g.Since.Unix() != 900_000_000 {
			t.Errorf("gap %+v, want one from 1 to %d", g, last.rv)
		}
		first.mu.Unlock()
		s.put("a", "2", nil)
		first.wait(t, append(want, "u a uid-1 1→2")...)
		_ = m.Flush(t.Context())
		first.end()

		again := live(t, s, m, log.use) // the next run sends no gap again
		s.put("a", "3", nil)
		again.wait(t, "u a uid-1 2→3")
	})
}

// The log is replaced between two runs.
func TestLogIsReplacedBetweenRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		log := new(replaceable)
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		first := live(t, s, m, log.use)
		first.wait(t, "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2")
		eventually(t, "the snapshot to be done with", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.Snapshot == nil
		})
		first.end()
		log.number.Add(1)
		holding := func(kind object.StreamKind) func(*informers.Options, *recorder) {
			return func(o *informers.Options, rec *recorder) {
				log.use(o, rec)
				rec.holds = func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == kind }
			}
		}
		// Each run begins with the first event that the log does not have.
		for range 2 {
			second := live(t, s, m, holding(object.Gap))
			second.wait(t, "gap 0 checkpoint-lost")
			if gap := second.gaps()[0]; gap.Since.Unix() != 900_000_000 {
				t.Errorf("the gap is said to be since %v, and the log was last seen whole before", gap.Since)
			}
			_ = m.Flush(t.Context())
			second.end()
		}
		want := []string{"gap 0 checkpoint-lost", "snapshot.started 2"}
		for range 2 {
			third := live(t, s, m, holding(object.SnapshotStarted))
			third.wait(t, want...)
			_ = m.Flush(t.Context())
			third.end()
			want = want[len(want)-1:]
		}
		third := live(t, s, m, log.use)
		want = append(want, "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2")
		third.wait(t, want...)
		s.delete("b")
		third.wait(t, append(want, "d b uid-2 1→-")...)
	})
}

// With snapshot.mode never, only the gap is sent.
func TestLogIsReplacedWithoutSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		log := new(replaceable)
		s.put("a", "1", nil)
		never := func(o *informers.Options, rec *recorder) {
			log.use(o, rec)
			o.Snapshot = informer.SnapshotNever
		}
		first := live(t, s, m, never)
		eventually(t, "the list", func() bool { return first.set.Ready() == nil && len(first.set.Status()) > 0 })
		log.replace(first.set)
		first.wait(t, "gap 0 checkpoint-lost")
		eventually(t, "the number to be remembered", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.Log == 1
		})
		first.end()
		second := live(t, s, m, never)
		s.put("a", "2", nil)
		second.wait(t, "u a uid-1 1→2")
	})
}

// A snapshot that is partly on the old log is given up. The snapshot after the gap replaces it.
func TestLogIsReplacedInsideSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		log := new(replaceable)
		for _, name := range []string{"a", "b", "c"} {
			s.put(name, "1", nil)
		}
		first := live(t, s, m, func(o *informers.Options, rec *recorder) {
			log.use(o, rec)
			rec.room = 2
		})
		begun := []string{"snapshot.started 3", "r a uid-1 -→1"}
		first.wait(t, begun...)
		log.replace(first.set)
		first.setRoom(unbounded)
		first.wait(t,
			append(begun, "gap 0 checkpoint-lost", "snapshot.started 3", "r a uid-1 -→1", "r b uid-2 -→1",
				"r c uid-3 -→1", "snapshot.completed 3")...)
	})
}

// heldStart begins a snapshot whose start the bus does not acknowledge. The channel receives the
// result of the request.
func heldStart(t *testing.T, l *life) <-chan error {
	t.Helper()
	l.hold(func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.SnapshotStarted })
	answered := make(chan error, 1)
	go func() {
		_, err := l.set.Snapshot(t.Context(), "", "")
		answered <- err
	}()
	l.wait(t, "snapshot.started 1")
	return answered
}

func answers(t *testing.T, answered <-chan error) {
	t.Helper()
	select {
	case err := <-answered:
		if err != nil {
			t.Errorf("the request for the snapshot: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the request for the snapshot is never answered")
	}
}

// A list shows a change while the start of a snapshot is not acknowledged, so the change is to
// follow a read of the snapshot. If the log is then replaced, the change is sent without that read.
// The next snapshot reads the object, and the request for the first one is answered.
func TestLogIsReplacedBehindRelistInsideSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		log := new(replaceable)
		s.put("a", "1", nil)
		l := liveSaved(t, s, m, log.use)
		l.forgetDeltas()
		l.hold(func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.SnapshotStarted })
		log.replace(l.set)
		want := []string{"gap 0 checkpoint-lost", "snapshot.started 1"}
		l.wait(t, want...)
		s.relists(t, func() { s.put("a", "2", nil) })
		log.replace(l.set)
		l.acknowledge()
		want = append(want, "gap 0 checkpoint-lost", "gap 0 expired", "u a uid-1 1→2", "snapshot.started 1",
			"r a uid-1 -→2", "snapshot.completed 1")
		l.wait(t, want...)
		eventually(t, "the number to be remembered", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.Log == 2 && c.Snapshot == nil
		})
		s.put("a", "3", nil)
		l.wait(t, append(want, "u a uid-1 2→3")...)
	})
}

// The same for a snapshot on demand if there are no others: the bus does not have all of it, and
// another one follows the gap.
func TestLogIsReplacedBehindRelistInsideSnapshotOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		log := new(replaceable)
		s.put("a", "1", nil)
		l := live(t, s, m, func(o *informers.Options, r *recorder) {
			log.use(o, r)
			o.Snapshot = informer.SnapshotNever
		})
		l.awaitCaptured(t)
		answered := heldStart(t, l)
		s.relists(t, func() { s.put("a", "2", nil) })
		answers(t, answered)
		log.replace(l.set)
		l.acknowledge()
		l.wait(t, "snapshot.started 1", "gap 0 checkpoint-lost", "gap 0 expired", "u a uid-1 1→2",
			"snapshot.started 1", "r a uid-1 -→2", "snapshot.completed 1")
	})
}

// etcd is restored after a list was compared while the start of a snapshot is not acknowledged.
func TestRestoredWhileSnapshotBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		copied := s.put("a", "2", nil).rv
		s.put("a", "3", nil)
		l := liveSaved(t, s, m, nil)
		l.forgetDeltas()
		answered := heldStart(t, l)
		s.relists(t, func() { s.put("a", "4", nil) })
		s.relists(t, func() { s.restore(copied) })
		answers(t, answered)
		l.acknowledge()
		l.wait(t, "snapshot.started 1", "gap 0 rewound", "snapshot.started 1", "r a uid-1 -→2", "snapshot.completed 1")
	})
}

// The agent ends right after a log is replaced. The new log must not begin with the progress of
// events that it does not have.
func TestNoProgressBeforeGapOfReplacedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		log := new(replaceable)
		l := live(t, s, m, log.use)
		want := []string{"snapshot.started 0", "snapshot.completed 0"}
		l.wait(t, want...)
		eventually(t, "the snapshot to be complete", func() bool { return l.set.Status()[0].Captured })
		l.end()
		log.number.Add(1)
		if err := l.set.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.wait(t, want...)
		if n := len(l.told); n == 0 || l.told[n-1].Report.Scopes[0].ResourceVersion != 0 {
			t.Errorf("the last progress claims something: %+v", l.told)
		}
	})
}

// A new scope and those of a deleted node begin with a snapshot: a log that was replaced before has
// lost none of their events.
func TestScopeBeginsOnAReplacedLog(t *testing.T) {
	t.Run("new scope", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newAPIServer(t)
			m := newMemory()
			log := new(replaceable)
			s.put("a", "1", nil)
			s.put("b", "1", map[string]string{"blue": "1"})
			liveSaved(t, s, m, log.use).end()
			s.put("c", "1", nil) // the tombstone of the old scope is later than what was sent
			log.number.Add(1)
			second := live(t, s, m, func(o *informers.Options, r *recorder) {
				log.use(o, r)
				o.Rules[0].LabelSelector = "blue"
			})
			eventually(t, "the new scope to be captured", func() bool {
				st := second.set.Status()
				return len(st) == 1 && st[0].Captured
			})
			for _, gap := range second.gaps() {
				if gap.Scope != "configmaps" && gap.Reason == object.CheckpointLost {
					t.Errorf("%+v: nothing of the scope was on the log", *gap)
				}
			}
		})
	})
	t.Run("node", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := cluster(t, "n1")
			m := newMemory()
			log := new(replaceable)
			log.number.Add(1)
			c := startCentral(t, s, m, log.use)
			s.deleteIn("", "n1")
			c.waitScope(t, unbound+"n1", takenOver("r n1 uid-2 -→1")...)
		})
	})
}
