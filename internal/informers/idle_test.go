package informers_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
)

// of returns the short forms of the deltas of a scope, and of those of its objects.
func (l *life) of(scope string) (out []string) {
	for _, d := range l.ofScope(scope) {
		text := short(d)
		if d.Stream != nil && d.Stream.Kind == object.ScopeEnded {
			text += " " + string(d.Stream.End)
			for _, name := range d.Stream.Successors {
				text += " " + name
			}
		}
		out = append(out, text)
	}
	return out
}

func (l *life) wantOf(t *testing.T, scope string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, l.of(scope)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", scope, diff)
	}
}

// idleReload is a run over three objects, on an etcd in which nothing is written after them. A
// reload selects the red one.
func idleReload(t *testing.T, m *memory, change func(*informers.Options, *recorder)) (*apiServer, *life) {
	t.Helper()
	s := newAPIServer(t)
	s.put("red", "1", map[string]string{"colour": "red"})
	s.put("blue", "1", nil)
	s.put("green", "1", nil)
	l := live(t, s, m, withScopes(change))
	l.awaitCaptured(t)
	l.reload(t, specOf(rule(selected("colour=red", ""))))
	return s, l
}

var (
	reds      = "configmaps?labelSelector=colour=red"
	replaced  = []string{"gap 0 selection-changed", "scope.ended 0 replaced " + reds}
	bothLeft  = []string{"~l blue uid-2 1→-", "~l green uid-3 1→-"}
	redBegins = []string{"scope.started 0", "snapshot.started 1", "r red uid-1 -→1", "snapshot.completed 1"}
)

// ofEnding is of, without what precedes the gap of the tombstone. The objects that left are sorted.
func (l *life) ofEnding() []string {
	all := l.of("configmaps")
	all = all[max(slices.Index(all, replaced[0]), 0):]
	slices.Sort(all[min(len(replaced), len(all)):])
	return all
}

func (l *life) wantEnding(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, l.ofEnding()); diff != "" {
		t.Errorf("the scope that ends (-want +got):\n%s", diff)
	}
}

// An etcd of its own, such as that of an aggregated API, may be idle for long. The scope that
// replaces another one begins all the same, and the end of the other one names it. The left events
// follow with the next version.
func TestReloadOnAnIdleEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, l := idleReload(t, m, nil)
		pass(time.Minute)
		l.wantEnding(t, replaced...)
		l.wantOf(t, reds, redBegins...)
		last := s.now1()
		pass(time.Minute) // the first progress is sent before the end
		if told := l.lastTold(t).Report.Scopes; len(told) != 1 || told[0].Scope != "" {
			t.Errorf("the progress says %+v, want an entry of the new scope alone", told)
		}
		pass(time.Hour)
		s.put("blue", "2", map[string]string{"colour": "red"}) // the next version, and it is selected
		s.put("red", "2", map[string]string{"colour": "red"})
		pass(2 * time.Minute)
		l.wantEnding(t, append(slices.Clone(replaced), bothLeft[1])...)
		l.wantOf(t, reds, append(slices.Clone(redBegins), "e blue uid-2 1→2", "u red uid-1 1→2")...)
		for _, d := range l.ofScope("configmaps") {
			if d.Op == object.Left && d.ResourceVersion != last+1 {
				t.Errorf("left at %d, want the next version, %d", d.ResourceVersion, last+1)
			}
		}
		_ = m.Flush(t.Context())
		if c, known := m.saved("configmaps"); known {
			t.Errorf("the checkpoint still has %+v", c)
		}
	})
}

// The next version is compacted before the agent asks for it.
func TestReloadOnAnEtcdThatIsIdleNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := idleReload(t, newMemory(), nil)
		pass(10 * time.Minute)
		s.put("red", "2", map[string]string{"colour": "red"})
		s.put("red", "3", map[string]string{"colour": "red"})
		last := s.now1()
		s.do(func() { s.compacted = last })
		pass(2 * time.Minute)
		l.wantEnding(t, append(slices.Clone(replaced), bothLeft...)...)
		for _, d := range l.ofScope("configmaps") {
			if d.Op == object.Left && d.ResourceVersion != last {
				t.Errorf("left at %d, want %d", d.ResourceVersion, last)
			}
		}
	})
}

// The agent ends before there is a later version. The next run still sends the left events.
func TestReloadOnAnIdleEtcdAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, l := idleReload(t, m, nil)
		pass(time.Minute)
		_ = m.Flush(t.Context())
		if c, known := m.saved("configmaps"); !known || c.Retiring == nil {
			t.Errorf("the checkpoint has %+v (%t), want a scope that is retiring", c, known)
		}
		l.end()
		again := live(t, s, m, withScopes(takes(rule(selected("colour=red", "")))))
		pass(time.Minute)
		again.wantOf(t, "configmaps", replaced...)
		again.wantOf(t, reds, "scope.started 0")
		s.put("other", "1", nil)
		pass(2 * time.Minute)
		again.wantEnding(t, append(slices.Clone(replaced), bothLeft...)...)
	})
}

// The agent is started with another selection. It becomes ready although nothing is written.
func TestStartWithAnotherSelectionOnAnIdleEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("red", "1", map[string]string{"colour": "red"})
		s.put("blue", "1", nil)
		liveSaved(t, s, m, nil).end()
		l := live(t, s, m, withScopes(takes(rule(selected("colour=red", "")))))
		pass(20 * time.Second)
		l.wantReady(t)
		l.wantOf(t, "configmaps", replaced...)
		s.put("red", "2", map[string]string{"colour": "red"})
		pass(2 * time.Minute)
		l.wantOf(t, "configmaps", append(slices.Clone(replaced), bothLeft[0])...)
	})
}

// The scope is selected again while nothing is written. It begins, and what it lacks is swept.
func TestReloadOnAnIdleEtcdAndBack(t *testing.T) {
	for _, mode := range []informer.SnapshotMode{informer.SnapshotInitial, informer.SnapshotNever} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				s, l := idleReload(t, m, func(o *informers.Options, _ *recorder) { o.Snapshot = mode })
				pass(time.Minute)
				l.reload(t, specOf(rule(nil)))
				pass(time.Minute)
				l.awaitPhases(t, "configmaps live")
				s.put("blue", "2", nil)
				pass(2 * time.Minute)
				want := slices.Clone(replaced)
				if mode != informer.SnapshotNever {
					want = append(want, "r blue uid-2 -→1", "r green uid-3 -→1", "r red uid-1 -→1",
						"scope.started 0", "snapshot.completed 0", "snapshot.completed 3", "snapshot.started 0",
						"snapshot.started 3", "u blue uid-2 1→2")
				} else {
					want = append(want, "scope.started 0", "u blue uid-2 1→2")
				}
				l.wantEnding(t, want...)
			})
		})
	}
}

// A scope without a successor ends too.
func TestDeselectedOnAnIdleEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.nodes = true
		s.putIn("", "node", "1", nil)
		s.put("a", "1", nil)
		l := live(t, s, m, withScopes(takes(rule(nil), nodeRule(nil))))
		l.awaitCaptured(t)
		l.reload(t, specOf(rule(nil)))
		pass(time.Minute)
		l.wantOf(t, "nodes", "scope.started 0", "snapshot.started 1", "r node uid-1 -→1", "snapshot.completed 1",
			"gap 0 selection-changed", "scope.ended 0 deselected")
		s.put("a", "2", nil)
		pass(2 * time.Minute)
		if !l.has("~l node uid-1 1→-") {
			t.Error("the Node has not left")
		}
	})
}
