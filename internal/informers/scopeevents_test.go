package informers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// withScopes makes the recorder record the starts and ends of scopes.
func withScopes(change func(*informers.Options, *recorder)) func(*informers.Options, *recorder) {
	return func(o *informers.Options, r *recorder) {
		r.scopes = true
		if change != nil {
			change(o, r)
		}
	}
}

// observations returns the starts and ends of scopes, each with what it says.
func (r *recorder) observations() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deltas {
		switch s := d.Stream; {
		case s == nil:
		case s.Kind == object.ScopeStarted:
			how := "after a gap"
			switch {
			case s.Initial:
				how = "initial"
			case s.Continued:
				how = "continued"
			}
			out = append(out,
				fmt.Sprintf("%s starts, %s, from %d, by %s", s.Scope, how, s.ResourceVersion, s.Observation.Rules))
		case s.Kind == object.ScopeEnded:
			out = append(out,
				strings.TrimSpace(fmt.Sprintf("%s ends, %s %s", s.Scope, s.End, strings.Join(s.Successors, " "))))
		}
	}
	return out
}

// wantObservations waits for starts and ends. Those of different scopes may come in any order.
func (l *life) wantObservations(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "all starts and ends", func() bool { return len(l.observations()) >= len(want) })
	ofScope := func(a, b string) int { return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0]) }
	got := l.observations()
	slices.SortStableFunc(want, ofScope)
	slices.SortStableFunc(got, ofScope)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("starts and ends of scopes (-want +got):\n%s", d)
	}
}

// filterText gives the rule a filter, in the words of the configuration.
func filterText(operation string) func(*selection.Rule) {
	return func(r *selection.Rule) { r.Filters = selection.FilterText{Operations: []string{operation}} }
}

// Each run says that it observes a scope, after the gap and before everything else that it sends.
func TestEachRunSaysThatItObservesAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		first := s.put("a", "1", nil).rv
		l := live(t, s, m, withScopes(nil))
		l.wait(t, "scope.started 0", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		l.wantObservations(t, fmt.Sprintf("configmaps starts, initial, from %d, by [{}]", first))
		began := l.deltas[0].Stream.Observation.Since
		if began.IsZero() {
			t.Error("it does not say since when")
		}
		_ = m.Flush(t.Context())
		l.end()

		second := s.put("a", "2", nil).rv
		l = live(t, s, m, withScopes(nil))
		l.wait(t, "scope.started 0", "u a uid-1 1→2")
		l.wantObservations(t, fmt.Sprintf("configmaps starts, continued, from %d, by [{}]", first))
		if since := l.deltas[0].Stream.Observation.Since; !since.Equal(began) {
			t.Errorf("the second run says that the scope is observed since %v, want %v", since, began)
		}
		l.atMark(t, m, second)
		l.end()

		s.put("a", "3", nil)
		third := s.put("a", "4", nil).rv
		s.compact()
		l = live(t, s, m, withScopes(nil))
		l.wait(t, "gap 0 compacted", "scope.started 0", "snapshot.started 1", "r a uid-1 -→4", "snapshot.completed 1")
		// the compaction is a revision too
		l.wantObservations(t, fmt.Sprintf("configmaps starts, after a gap, from %d, by [{}]", third+1))
	})
}

// A changed filter does not end the observation: it is said with the new rules.
func TestAChangedFilterIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		first := s.put("a", "1", nil).rv
		l := live(t, s, newMemory(), withScopes(nil))
		l.wait(t, "scope.started 0", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		l.reload(t, specOf(rule(filterText("created"))))
		l.wantObservations(t,
			fmt.Sprintf("configmaps starts, initial, from %d, by [{}]", first),
			fmt.Sprintf(`configmaps starts, continued, from %d, by [{"operations":["created"]}]`, first))
		l.reload(t, specOf(rule(filterText("created"))))
		s.put("a", "2", nil)
		l.wait(t, "scope.started 0", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "scope.started 0",
			"u a uid-1 1→2")
	})
}

// The end of a scope that is no longer selected follows its left events. Its successors are named.
func TestADeselectedScopeEnds(t *testing.T) {
	shop := func(r *selection.Rule) {
		r.AllNamespaces = false
		r.Names = []string{"shop"}
		r.Namespaces = func(ns string) bool { return ns == "shop" }
	}
	for name, c := range map[string]struct {
		rules []selection.Rule
		want  []string
	}{
		"deselected": {[]selection.Rule{rule(nil)}, []string{
			"configmaps starts, initial, from 102, by [{}]", "nodes ends, deselected",
		}},
		"replaced": {
			[]selection.Rule{nodeRule(selected("colour=red", ""))},
			[]string{
				"nodes ends, replaced nodes?labelSelector=colour=red",
				`nodes?labelSelector=colour=red starts, after a gap, from 101, by [{"labelSelector":"colour=red"}]`,
			},
		},
		"another namespace": {[]selection.Rule{rule(shop)}, []string{
			"configmaps/shop starts, initial, from 102, by [{\"namespaces\":[\"shop\"]}]", "nodes ends, deselected",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.nodes = true
				s.putIn("", "node", "1", nil)
				l := live(t, s, m, withScopes(takes(nodeRule(nil))))
				informers.Impatient(l.set)
				l.awaitCaptured(t)
				s.put("a", "1", nil)
				l.reload(t, specOf(c.rules...))
				l.wantObservations(t, append([]string{"nodes starts, initial, from 101, by [{}]"}, c.want...)...)
				l.awaitForgotten(t, m)
			})
		})
	}
}

// The checkpoint keeps a scope until the bus has its end. If the run ends before, the next one
// sends it. The scope starts again after it.
func TestTheEndOfAScopeIsSentByTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newCustoms(t), newMemory()
		s.define(true)
		s.put("a", "1", nil)
		l := live(t, s.apiServer, m, withScopes(takes(widgets(nil))))
		l.wait(t, "scope.started 0", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		l.mu.Lock()
		l.holds = func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.ScopeEnded }
		l.mu.Unlock()
		s.delete("a")
		s.define(false)
		s.CloseClientConnections()
		eventually(t, "the end of the scope", func() bool { return l.has("scope.ended 0") })
		_ = m.Flush(t.Context())
		if c, ok := m.saved("widgets.shop.test"); !ok || c.Ended == nil || c.Ended.Reason != "removed" {
			t.Errorf("the checkpoint has %+v (%t), want an ended scope", c, ok)
		}
		s.define(true)
		s.put("b", "1", nil)
		synctest.Wait()
		if l.has("c b uid-2 -→1") {
			t.Error("the scope starts again before the bus has its end")
		}
		l.end()
		m.mu.Lock()
		c := m.scopes["widgets.shop.test"]
		c.History = 1 // etcd was restored in an earlier run
		m.scopes["widgets.shop.test"] = c
		m.mu.Unlock()

		l = live(t, s.apiServer, m, withScopes(takes(widgets(nil))))
		eventually(t, "the new object", func() bool { return l.has("r b uid-2 -→1") || l.has("c b uid-2 -→1") })
		for _, d := range l.ofScope("widgets.shop.test") {
			if d.Stream == nil && d.History != 1 {
				t.Errorf("%s has the history number %d, want that of the ended scope", short(d), d.History)
			}
		}
		got := l.observations()
		if len(got) != 2 || got[0] != "widgets.shop.test ends, removed" ||
			!strings.HasPrefix(got[1], "widgets.shop.test starts, ") {
			t.Errorf("the next run says %q", got)
		}
	})
}
