package informers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
)

func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		for _, name := range []string{"changed", "gone", "kept", "replaced"} {
			s.put(name, "1", nil)
		}
		first := live(t, s, m, nil)
		first.wait(t, "snapshot.started 4", "r changed uid-1 -→1", "r gone uid-2 -→1", "r kept uid-3 -→1",
			"r replaced uid-4 -→1",
			"snapshot.completed 4")
		eventually(t, "the snapshot to be done with", func() bool {
			_ = m.Flush(t.Context())
			c, ok := m.saved("configmaps")
			return ok && c.Snapshot == nil
		})
		first.end()

		again := live(t, s, m, nil)
		eventually(t, "a watch", func() bool { return again.set.Status() != nil && again.set.Ready() == nil })
		again.end()
		again.wait(t) // nothing has happened

		s.put("changed", "2", nil)
		s.put("changed", "3", nil)
		s.delete("gone")
		s.delete("replaced")
		s.put("replaced", "2", nil)
		s.put("added", "1", nil)
		third := live(t, s, m, nil)
		third.wait(t, "u changed uid-1 1→2", "u changed uid-1 2→3", "d gone uid-2 1→-", "d replaced uid-4 1→-",
			"c replaced uid-5 -→2",
			"c added uid-6 -→1")
	})
}

// Deltas that were not acknowledged are sent again, with the same versions.
func TestResumeSendsAgainWhatWasNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		first := live(t, s, m, nil)
		first.wait(t, "snapshot.started 0", "snapshot.completed 0")
		first.mu.Lock()
		first.held = true
		first.mu.Unlock()
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		s.put("a", "2", nil)
		first.wait(t, "snapshot.started 0", "snapshot.completed 0", "c a uid-1 -→1", "c b uid-2 -→1", "u a uid-1 1→2")
		first.mu.Lock()
		first.unacked[1].Acker.Acked(first.unacked[1]) // out of order
		first.mu.Unlock()
		_ = m.Flush(t.Context())
		first.end()
		live(t, s, m, nil).wait(t, "c a uid-1 -→1", "c b uid-2 -→1", "u a uid-1 1→2")
	})
}

// A snapshot that a crash interrupted resumes under its id, after the reads that were acknowledged.
func TestResumeInsideSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			s.put(name, "1", nil)
		}
		first := live(t, s, m, func(_ *informers.Options, rec *recorder) { rec.held = true })
		all := []string{
			"snapshot.started 6", "r a uid-1 -→1", "r b uid-2 -→1", "r c uid-3 -→1", "r d uid-4 -→1", "r e uid-5 -→1",
			"r f uid-6 -→1",
		}
		first.wait(t, all...)
		s.put("e", "2", nil)
		s.delete("f")
		first.wait(t, append(all, "u e uid-5 1→2", "d f uid-6 1→-")...)
		first.mu.Lock()
		for _, n := range []int{0, 1, 3, 4, 5, 6, 7} { // not the read of c
			first.unacked[n].Acker.Acked(first.unacked[n])
		}
		id := first.deltas[0].Stream.Snapshot
		first.mu.Unlock()
		_ = m.Flush(t.Context())
		first.end()
		s.put("e", "3", nil)

		second := live(t, s, m, nil)
		second.waitPerName(t, "r c uid-3 -→1", "r d uid-4 -→1", "u e uid-5 2→3", "snapshot.completed 6")
		second.mu.Lock()
		defer second.mu.Unlock()
		for _, d := range second.deltas {
			if d.Op == object.Read && d.Snapshot != id || d.Stream != nil && d.Stream.Snapshot != id {
				t.Errorf("%s belongs to another snapshot than %s", short(d), id)
			}
		}
	})
}

// The watch cannot resume, but lists still have the history: every version is found, with its true
// before.
func TestResumeWalksBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("changed", "1", nil)
		s.put("gone", "1", nil)
		first := live(t, s, m, nil)
		first.wait(t, "snapshot.started 2", "r changed uid-1 -→1", "r gone uid-2 -→1", "snapshot.completed 2")
		eventually(t, "the snapshot to be done with", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.Snapshot == nil
		})
		first.end()
		for _, v := range []string{"2", "3", "4"} {
			s.put("changed", v, nil)
			s.put("gone", v, nil)
		}
		s.delete("gone")
		s.put("added", "1", nil)
		s.put("added", "2", nil)
		s.gone(s.put("last", "1", nil).rv)
		second := live(t, s, m, nil)
		want := []string{
			"gap 0 expired", "c added uid-3 -→1", "u added uid-3 1→2", "u changed uid-1 1→2", "u changed uid-1 2→3",
			"u changed uid-1 3→4",
			"u gone uid-2 1→2", "u gone uid-2 2→3", "u gone uid-2 3→4", "d gone uid-2 4→-", "c last uid-4 -→1",
		}
		// The previous run may have sent more than it saved. A snapshot corrects that.
		want = append(want, "snapshot.started 3", "r added uid-3 -→2", "r changed uid-1 -→4", "r last uid-4 -→1",
			"snapshot.completed 3")
		second.wait(t, want...)
		second.mu.Lock()
		if !second.deltas[0].Stream.Recovered {
			t.Error("the gap does not say that everything was found")
		}
		for _, d := range second.deltas[1:11] {
			if by := fmt.Sprintf("%q", "m-"+valueOf(d.After)); d.Op != object.Deleted &&
				!strings.Contains(string(d.ChangedBy), by) {
				t.Errorf("%s: changed by %s, want %s", short(d), d.ChangedBy, by)
			}
		}
		second.mu.Unlock()
		s.put("last", "2", nil)
		second.wait(t, append(want, "u last uid-4 1→2")...)
	})
}

// A crash between a gap and the snapshot that sweeps after it does not lose the snapshot.
// Otherwise, objects that the previous run sent, and that no list shows, would live on for
// consumers.
func TestSweepAfterAGapSurvivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		first := keptIsSaved(t, s, m)
		s.put("short", "1", nil)
		first.wait(t, "snapshot.started 1", "r kept uid-1 -→1", "snapshot.completed 1", "c short uid-2 -→1")
		first.end() // without a save: a crash
		s.delete("short")
		past := s.put("kept", "2", nil).rv
		s.gone(past)
		crash := &lastSave{memory: m, until: func(c checkpoint.Scope) bool { return c.ResourceVersion >= past }}
		second := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Memory = crash })
		eventually(t, "the gap", func() bool { return second.has("gap 0 expired") })
		pass(time.Minute)
		second.end()
		if c, _ := m.saved("configmaps"); c.ResourceVersion < past || c.Snapshot != nil {
			t.Fatalf("the checkpoint is not between the gap and the snapshot: %+v", c)
		}
		live(t, s, m, nil).wait(t, "snapshot.started 1", "r kept uid-1 -→2", "snapshot.completed 1")
	})
}

// Until the changes that a relist found are acknowledged, a restart finds the gap again.
func TestCheckpointStaysBeforeGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		first := live(t, s, m, nil)
		first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		first.mu.Lock()
		first.held = true
		first.mu.Unlock()
		_ = m.Flush(t.Context())
		before, _ := m.saved("configmaps")
		s.compact()
		s.put("a", "2", nil)
		s.compact()
		first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "gap 0 expired", "~u a uid-1 1→2")
		s.put("b", "1", nil)
		first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "gap 0 expired", "~u a uid-1 1→2",
			"c b uid-2 -→1")
		first.mu.Lock()
		first.unacked[1].Acker.Acked(first.unacked[1]) // the live one
		first.unacked = first.unacked[:1]
		first.mu.Unlock()
		_ = m.Flush(t.Context())
		if now, _ := m.saved("configmaps"); now.ResourceVersion != before.ResourceVersion || now.State != before.State {
			t.Errorf("the checkpoint went from %d to %d behind a gap of which not all is acknowledged",
				before.ResourceVersion, now.ResourceVersion)
		}
		first.acknowledge()
		_ = m.Flush(t.Context())
		now, _ := m.saved("configmaps")
		first.end()
		s.put("b", "2", nil)
		if now.ResourceVersion <= before.ResourceVersion {
			t.Errorf("the checkpoint stays at %d", now.ResourceVersion)
		}
		live(t, s, m, nil).wait(t, "u b uid-2 1→2")
	})
}

// crowded is a lane that has room for live deltas only.
type crowded struct {
	*recorder
	is atomic.Bool
}

func (c *crowded) TryPut(key string, bytes int, d *object.Delta) bool {
	return !c.is.Load() && c.recorder.TryPut(key, bytes, d)
}

func (c *crowded) Room() <-chan struct{} {
	if c.is.Load() {
		return nil
	}
	return c.recorder.Room()
}

// While the queue is too full for what a list found, the next change of an object sends it. The
// checkpoint then passes the gap at the end of the run, although the cursor still waits for room:
// the next run repeats nothing.
func TestCheckpointPassesGapAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		var lane *crowded
		first := live(t, s, m, func(o *informers.Options, rec *recorder) {
			lane = &crowded{recorder: rec}
			o.Lane = func(string) store.Lane { return lane }
		})
		want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		first.wait(t, want...)
		lane.is.Store(true)
		s.compact()
		s.put("a", "2", nil)
		s.compact()
		want = append(want, "gap 0 expired")
		first.wait(t, want...)
		eventually(t, "the watch", func() bool { return first.set.Ready() == nil })
		last := s.put("a", "3", nil).rv
		first.wait(t, append(want, "~u a uid-1 1→2", "u a uid-1 2→3")...)
		first.end()
		_ = m.Flush(t.Context())
		if c, _ := m.saved("configmaps"); c.ResourceVersion != last {
			t.Errorf("the checkpoint is at %d, want %d", c.ResourceVersion, last)
		}
		s.put("a", "4", nil)
		live(t, s, m, nil).wait(t, "u a uid-1 3→4")
	})
}

func TestSelectionChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		red := map[string]string{"red": "1"}
		blue := map[string]string{"blue": "1"}
		both := map[string]string{"red": "1", "blue": "1"}
		s.put("red", "1", red)
		s.put("blue", "1", blue)
		s.put("both", "1", both)
		s.put("none", "1", nil)
		first := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].LabelSelector = "red" })
		first.wait(t, "snapshot.started 2", "r both uid-3 -→1", "r red uid-1 -→1", "snapshot.completed 2")
		_ = m.Flush(t.Context())
		first.end()
		s.put("both", "2", both)
		second := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].LabelSelector = "blue" })
		second.waitPerName(t, "gap 0 selection-changed", "~l red uid-1 1→-", "snapshot.started 2", "r both uid-3 -→1",
			"u both uid-3 1→2",
			"r blue uid-2 -→1", "snapshot.completed 2")
		eventually(t, "the old scope to be forgotten", func() bool {
			_, ok := m.saved("configmaps?labelSelector=red")
			return !ok
		})
	})
}

func TestSnapshotOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		l := live(t, s, m, nil)
		want := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
		l.wait(t, want...)
		s.put("a", "2", nil)
		want = append(want, "u a uid-1 1→2")
		l.wait(t, want...)
		var started []store.Started
		eventually(t, "a snapshot to begin", func() bool {
			var err error
			started, err = l.set.Snapshot(t.Context(), "configmaps", "shop")
			return err == nil && !started[0].Running
		})
		if len(started) != 1 || started[0].Scope != "configmaps/shop" || started[0].Objects != 2 {
			t.Errorf("started %+v", started)
		}
		want = append(want, "snapshot.started 2", "r a uid-1 -→2", "r b uid-2 -→1", "snapshot.completed 2")
		l.wait(t, want...)
		s.put("b", "2", nil)
		l.wait(t, append(want, "u b uid-2 1→2")...)
		if _, err := l.set.Snapshot(t.Context(), "pods", ""); err == nil ||
			!strings.Contains(err.Error(), "configmaps") {
			t.Errorf("a snapshot of what is not captured: %v", err)
		}
	})
}

func TestSnapshotEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Every = 50 * time.Millisecond })
		one := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		l.wait(t, slices.Concat(one, one, one)...)
		ids := map[string]bool{}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, d := range l.deltas[:9] {
			if d.Stream != nil {
				ids[d.Stream.Snapshot] = true
			}
		}
		if len(ids) != 3 {
			t.Errorf("%d ids for 3 snapshots", len(ids))
		}
	})
}

// The agent's own objects are never captured, but the checkpoint passes their events.
func TestIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("own", "1", nil)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Ignore = []informers.Name{{Resource: "configmaps", Namespace: "shop", Name: "own"}}
		})
		l.wait(t, "snapshot.started 0", "snapshot.completed 0")
		last := s.put("own", "2", nil).rv
		eventually(t, "the checkpoint to pass it", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.ResourceVersion == last
		})
		l.wait(t, "snapshot.started 0", "snapshot.completed 0")
	})
}

func TestFinishTellsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		l := live(t, s, m, nil)
		l.wait(t, "snapshot.started 0", "snapshot.completed 0")
		last := s.put("a", "1", nil).rv
		l.wait(t, "snapshot.started 0", "snapshot.completed 0", "c a uid-1 -→1")
		// The acknowledgement of snapshot.completed comes before the informer records it.
		eventually(t, "the snapshot to be complete", func() bool { return l.set.Status()[0].Captured })
		l.end()
		if err := l.set.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(l.told); n == 0 || !l.told[n-1].Report.Ends || len(l.told[n-1].Report.Scopes) != 1 {
			t.Fatalf("the last progress is %+v", l.told)
		}
		told := l.told[len(l.told)-1].Report.Scopes[0]
		if told.ResourceVersion != last || told.Scope != "" || told.Resource.Name != "configmaps" {
			t.Errorf("progress of %+v, want configmaps up to %d", told, last)
		}
	})
}

// keptIsSaved returns a run whose checkpoint has the complete snapshot of the object "kept".
func keptIsSaved(t *testing.T, s *apiServer, m *memory) *life {
	t.Helper()
	s.put("kept", "1", nil)
	l := live(t, s, m, nil)
	l.wait(t, "snapshot.started 1", "r kept uid-1 -→1", "snapshot.completed 1")
	eventually(t, "the snapshot to be saved as complete", func() bool {
		_ = m.Flush(t.Context())
		c, _ := m.saved("configmaps")
		return c.Snapshot == nil
	})
	return l
}

// crashedAfterGap makes the last run crash after it sent changes that follow a gap, and before the
// checkpoint passed the gap.
func crashedAfterGap(t *testing.T, s *apiServer, m *memory) {
	t.Helper()
	first := keptIsSaved(t, s, m)
	first.end()
	before := s.put("kept", "2", nil).rv
	s.gone(s.put("other", "1", nil).rv)
	second := live(t, s, m, func(_ *informers.Options, r *recorder) { r.held = true })
	second.wait(t, "gap 0 expired", "u kept uid-1 1→2", "c other uid-2 -→1")
	_ = m.Flush(t.Context())
	second.end() // without a save: a crash
	if c, _ := m.saved("configmaps"); !c.Sweep || c.ResourceVersion >= before {
		t.Fatalf("the checkpoint is not before the gap: %+v", c)
	}
	s.do(func() { s.fault = nil })
}

// waitLong is wait for more than a minute.
func (l *life) waitLong(t *testing.T, want ...string) {
	t.Helper()
	pass(2 * time.Minute)
	l.mu.Lock()
	defer l.mu.Unlock()
	var got []string
	for _, d := range l.deltas {
		got = append(got, short(d))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// noWatch makes watches fail.
func (s *apiServer) noWatch() {
	s.do(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "" {
				return false
			}
			fail(w, http.StatusInternalServerError, "InternalError")
			return true
		}
	})
}

// The snapshot that follows does not put reads of old versions after newer ones on the bus, however
// late the changes are repeated.
func TestSweepAfterACrashReadsTheLastVersions(t *testing.T) {
	repeated := []string{
		"u kept uid-1 1→2", "c other uid-2 -→1", "snapshot.started 2", "r kept uid-1 -→2", "r other uid-2 -→1",
		"snapshot.completed 2",
	}
	t.Run("at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, m := newAPIServer(t), newMemory()
			crashedAfterGap(t, s, m)
			live(t, s, m, nil).wait(t, repeated...)
		})
	})
	t.Run("no watch for a while", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, m := newAPIServer(t), newMemory()
			crashedAfterGap(t, s, m)
			s.noWatch()
			third := live(t, s, m, nil)
			pass(5 * time.Minute)
			third.wait(t)
			s.do(func() { s.fault = nil })
			third.waitLong(t, repeated...)
		})
	})
	t.Run("queue full for a while", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, m := newAPIServer(t), newMemory()
			crashedAfterGap(t, s, m)
			third := live(t, s, m, func(_ *informers.Options, r *recorder) { r.room = 0 })
			pass(5 * time.Minute)
			third.setRoom(unbounded)
			third.waitLong(t, repeated...)
		})
	})
	t.Run("reload", func(t *testing.T) { // its successor waits too
		synctest.Test(t, func(t *testing.T) {
			s, m := newAPIServer(t), newMemory()
			crashedAfterGap(t, s, m)
			s.noWatch()
			third := live(t, s, m, nil)
			pass(time.Second)
			third.reload(t, specOf(rule(redacted("metadata.labels"))))
			third.wait(t, "gap 0 content-changed")
			pass(10 * time.Second)
			s.do(func() { s.fault = nil })
			third.wait(t, append([]string{"gap 0 content-changed"}, repeated...)...)
		})
	})
}

// Without bookmarks, an open watch that is silent for two minutes counts as having repeated all
// changes.
func TestSweepAfterACrashWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		crashedAfterGap(t, s, m)
		s.do(func() { s.rv++ }) // the watch does not show it
		third := live(t, s, m, nil)
		third.wait(t, "u kept uid-1 1→2", "c other uid-2 -→1")
		pass(time.Minute)
		third.wait(t, "u kept uid-1 1→2", "c other uid-2 -→1")
		pass(2 * time.Minute)
		if !third.has("snapshot.completed 2") {
			t.Error("no snapshot after three minutes")
		}
	})
}

// A resumed snapshot may be complete on the bus. If its reads are still pending when history is
// lost, they are those of the checkpoint: no read of a later version follows its end. Another
// snapshot removes what only the crashed run has sent.
func TestResumedSnapshotReadsItsOwnVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		first := live(t, s, m, func(_ *informers.Options, rec *recorder) { rec.held = true })
		first.wait(t, "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1")
		_ = m.Flush(t.Context())
		first.acknowledge()
		first.wait(t, "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2")
		first.end() // without a save: a crash
		s.put("a", "2", nil)
		s.gone(s.put("b", "2", nil).rv)

		second := live(t, s, m, func(_ *informers.Options, rec *recorder) { rec.room = 1 })
		second.wait(t, "snapshot.started 2")
		pass(10 * time.Second)
		second.setRoom(unbounded)
		second.wait(t, "snapshot.started 2", "gap 0 expired", "r a uid-1 -→1", "u a uid-1 1→2", "r b uid-2 -→1",
			"u b uid-2 1→2", "snapshot.completed 2", "snapshot.started 2", "r a uid-1 -→2", "r b uid-2 -→2",
			"snapshot.completed 2")
	})
}
