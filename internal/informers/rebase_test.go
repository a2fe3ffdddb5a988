package informers_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
)

// replaceable is a log that can be replaced.
type replaceable struct {
	number atomic.Uint64
}

func (l *replaceable) use(o *informers.Options, _ *recorder) {
	o.Replaced = func(*object.Resource, string) (uint64, time.Time) {
		return l.number.Load(), time.Unix(1_700_000_000, 0)
	}
}

func (l *replaceable) replace(set *informers.Set) {
	l.number.Add(1)
	set.Rebase()
}

// The log is replaced while the agent runs: a gap from the beginning, and a snapshot.
func TestLogIsReplaced(t *testing.T) {
	s, m, log := newAPIServer(t), newMemory(), new(replaceable)
	s.put("a", "1", nil)
	first := live(t, s, m, log.use)
	want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
	first.wait(t, want...)
	last := s.put("b", "1", nil)
	want = append(want, "c b uid-2 -→1")
	first.wait(t, want...)
	log.replace(first.set)
	want = append(want, "gap 0 checkpoint-lost", "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2")
	first.wait(t, want...)
	first.mu.Lock()
	if g := first.deltas[4].Stream; g.From != 1 || g.To != last.rv || g.Recovered || g.Since.Unix() != 1_700_000_000 {
		t.Errorf("gap %+v, want one from 1 to %d", g, last.rv)
	}
	first.mu.Unlock()
	s.put("a", "2", nil)
	first.wait(t, append(want, "u a uid-1 1→2")...)
	_ = m.Flush(t.Context())
	first.end()

	again := live(t, s, m, log.use) // which the next run knows
	s.put("a", "3", nil)
	again.wait(t, "u a uid-1 2→3")
}

// The log is replaced between two runs.
func TestLogIsReplacedBetweenRuns(t *testing.T) {
	s, m, log := newAPIServer(t), newMemory(), new(replaceable)
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
	// Until the snapshot has begun, each run begins with the gap.
	for range 2 {
		second := live(t, s, m, func(o *informers.Options, rec *recorder) {
			log.use(o, rec)
			rec.holds = func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.SnapshotStarted }
		})
		second.wait(t, "gap 0 checkpoint-lost", "snapshot.started 2")
		_ = m.Flush(t.Context())
		second.end()
	}
	third := live(t, s, m, log.use)
	want := []string{"gap 0 checkpoint-lost", "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
	third.wait(t, want...)
	s.delete("b")
	third.wait(t, append(want, "d b uid-2 1→-")...)
}

// With snapshot.mode never, the gap is all there is.
func TestLogIsReplacedWithoutSnapshots(t *testing.T) {
	s, m, log := newAPIServer(t), newMemory(), new(replaceable)
	s.put("a", "1", nil)
	never := func(o *informers.Options, rec *recorder) {
		log.use(o, rec)
		o.Snapshot = informers.SnapshotNever
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
}

// A snapshot of which a part is on the old log is given up: the one behind the gap takes its place.
func TestLogIsReplacedInsideSnapshot(t *testing.T) {
	s, m, log := newAPIServer(t), newMemory(), new(replaceable)
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
	first.wait(t, append(begun, "gap 0 checkpoint-lost", "snapshot.started 3", "r a uid-1 -→1", "r b uid-2 -→1", "r c uid-3 -→1", "snapshot.completed 3")...)
}
