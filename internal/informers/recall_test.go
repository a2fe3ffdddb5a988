package informers_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// asksBus makes a run ask for the last events and the last progress that another run has recorded.
func asksBus(bus *life, change func(*informers.Options, *recorder)) func(*informers.Options, *recorder) {
	return func(o *informers.Options, r *recorder) {
		o.LastEvent = func(_ context.Context, of *object.Resource) (informer.LastEvent, bool, error) {
			return bus.lastEvent(of)
		}
		o.LastProgress = bus.lastProgress
		o.StartedScopes = bus.startedScopes
		r.scopes = true
		if change != nil {
			change(o, r)
		}
	}
}

// lastProgress returns the last progress, as on a bus that has all of it.
func (r *recorder) lastProgress(context.Context) (all []informer.PreviousScope, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) == 0 {
		return nil, nil
	}
	report := r.told[len(r.told)-1].Report
	for _, s := range report.Scopes {
		to := s.To
		if to.IsZero() {
			to = report.To
		}
		all = append(all, informer.PreviousScope{
			Resource:        s.Resource.String(),
			Scope:           s.Scope,
			Count:           s.Count,
			ResourceVersion: s.ResourceVersion,
			History:         s.History,
			To:              to,
			Run:             recordedRun,
		})
	}
	return all, nil
}

// recordedRun is the name of the run that a recorder has recorded.
const recordedRun = "0-1795186799000"

// startedScopes returns the scopes of a resource that the run has started and not ended, as on a
// bus whose retention has removed the events of the kind cut.
func (r *recorder) startedScopes(
	_ context.Context, of *object.Resource, run string,
) (all []informer.StartedScope, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run != recordedRun {
		return nil, nil
	}
	for _, d := range r.deltas {
		e := d.Stream
		if e == nil || e.Resource.Name != of.Name || e.Kind == r.cut {
			continue
		}
		isSame := func(s informer.StartedScope) bool { return s.Name == e.Scope }
		switch {
		case e.Kind == object.ScopeEnded:
			all = slices.DeleteFunc(all, isSame)
		case e.Kind == object.ScopeStarted:
			all = append(slices.DeleteFunc(all, isSame), informer.StartedScope{Name: e.Scope})
		case e.Kind == object.SnapshotStarted && !slices.ContainsFunc(all, isSame):
			all = append(all, informer.StartedScope{Name: e.Scope, BySnapshot: true})
		}
	}
	return all, nil
}

// A checkpoint is lost. The gap begins where the last progress ended, and not at the last stream
// event, which may be a day old.
func TestLostCheckpointBeginsAtTheLastProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("a", "1", nil)
		s.marks(t)
		first := live(t, s, newMemory(), nil)
		pass(30 * time.Minute)
		s.put("a", "2", nil)
		pass(2 * time.Minute)
		first.end()
		told := first.lastTold(t).Report
		s.put("a", "3", nil)
		second := live(t, s, newMemory(), asksBus(first, nil))
		second.wait(t, "gap 0 checkpoint-lost", "scope.started 0", "snapshot.started 1", "r a uid-1 -→3",
			"snapshot.completed 1")
		gap := second.gaps()[0]
		if gap.From != told.Scopes[0].ResourceVersion || gap.Since.Before(told.To) {
			t.Errorf("the gap begins at %d, %v; the last progress was at %d, %v", gap.From, gap.Since,
				told.Scopes[0].ResourceVersion, told.To)
		}
	})
}

// A checkpoint is lost, and the selection is narrower than in the last run: the former scope ends.
func TestLostCheckpointAndNarrowedSelection(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*selection.Rule)
		want   []string
	}{
		"objects": {
			func(r *selection.Rule) { r.LabelSelector = "colour=red" },
			[]string{
				"configmaps ends, replaced configmaps?labelSelector=colour=red",
				"configmaps?labelSelector=colour=red starts, after a gap",
			},
		},
		"resources": {
			func(r *selection.Rule) { r.Resources = []selection.Pattern{pattern("nodes")} },
			[]string{"configmaps ends, deselected", "nodes starts, initial"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				s.nodes = true
				s.put("a", "1", nil)
				s.put("b", "1", map[string]string{"colour": "red"})
				s.marks(t)
				first := live(t, s, newMemory(), nil)
				pass(3 * time.Minute)
				first.end()
				s.put("a", "2", nil)
				second := live(t, s, newMemory(), asksBus(first, func(o *informers.Options, _ *recorder) {
					c.change(&o.Rules[0])
				}))
				pass(time.Minute)
				second.wantScopes(t, c.want...)
			})
		})
	}
}

// wantScopes compares the starts and ends of scopes, sorted.
func (l *life) wantScopes(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.deltas {
		switch e := d.Stream; {
		case e == nil:
		case e.Kind == object.ScopeStarted && e.Initial:
			got = append(got, e.Scope+" starts, initial")
		case e.Kind == object.ScopeStarted:
			got = append(got, e.Scope+" starts, after a gap")
		case e.Kind == object.ScopeEnded:
			text := fmt.Sprintf("%s ends, %s", e.Scope, e.End)
			for _, next := range e.Successors {
				text += " " + next
			}
			got = append(got, text)
		}
	}
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A checkpoint is lost, and of several scopes of a resource some are no longer selected. The
// progress does not name them. Their starts do.
func TestLostCheckpointOfSeveralScopes(t *testing.T) {
	for name, c := range map[string]struct {
		cut object.StreamKind // the bus has these no more
	}{
		"all starts are on the bus": {},
		// Retention has removed them. Each snapshot says who observes its scope.
		"only snapshots are on the bus": {cut: object.ScopeStarted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				for _, namespace := range []string{"shop", "left", "lost"} {
					s.putIn(namespace, "a", "1", nil)
				}
				s.marks(t)
				first := live(t, s, newMemory(), func(o *informers.Options, r *recorder) {
					o.Rules[0] = rule(inNamespaces("left", "lost", "shop"))
					r.scopes = true
				})
				pass(3 * time.Minute)
				first.end()
				first.mu.Lock()
				first.cut = c.cut
				first.mu.Unlock()
				second := live(t, s, newMemory(), asksBus(first, func(o *informers.Options, _ *recorder) {
					o.Rules[0] = rule(inNamespaces("shop"))
				}))
				pass(time.Minute)
				second.wantScopes(t, "configmaps/left ends, deselected", "configmaps/lost ends, deselected",
					"configmaps/shop starts, after a gap")
				for _, gap := range second.gaps() {
					want := object.SelectionChanged
					if gap.Scope == "configmaps/shop" {
						want = object.CheckpointLost
					}
					if gap.Reason != want {
						t.Errorf("the gap of %s has the reason %s, want %s", gap.Scope, gap.Reason, want)
					}
				}
			})
		})
	}
}

// The bus is away at the start of an agent that has no checkpoint. The agent observes the cluster
// meanwhile.
func TestStartDoesNotWaitForABusThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("a", "1", nil)
		isBack := make(chan struct{})
		a := live(t, s, newMemory(), func(o *informers.Options, _ *recorder) {
			o.LastProgress = func(ctx context.Context) ([]informer.PreviousScope, error) {
				select {
				case <-isBack:
					return nil, nil
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			}
		})
		pass(time.Minute)
		if lists, _, _ := s.counts(); lists == 0 {
			t.Error("nothing was listed within a minute")
		}
		close(isBack)
		a.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
	})
}

// A snapshot of a part of a scope has the name of a scope, and none is ended because of it.
func TestUnnamedScopes(t *testing.T) {
	started := func(bySnapshot bool, names ...string) (all []informer.StartedScope) {
		for _, name := range names {
			all = append(all, informer.StartedScope{Name: name, BySnapshot: bySnapshot})
		}
		return all
	}
	for name, c := range map[string]struct {
		started []informer.StartedScope
		count   int
		want    []string
	}{
		"starts": {started(false, "pods/a", "pods/b"), 2, []string{"pods/a", "pods/b"}},
		"one has its own entry": {started(false, "pods/a", "pods/b", "pods/named"), 2, []string{
			"pods/a", "pods/b",
		}},
		"one started after the progress": {started(false, "pods/a", "pods/b", "pods/c"), 2, []string{
			"pods/a", "pods/b", "pods/c",
		}},
		"only snapshots": {started(true, "pods/a", "pods/b"), 2, []string{"pods/a", "pods/b"}},
		"a snapshot is of a part": {
			append(started(false, "pods/a"), started(true, "pods/b", "pods/c")...), 2, []string{"pods/a"},
		},
		"the bus lacks one":               {started(false, "pods/a"), 2, []string{"pods/a"}},
		"the bus has none":                {nil, 2, nil},
		"only the one with its own entry": {started(false, "pods/named"), 2, nil},
		"a snapshot beside all the starts": {
			append(started(false, "pods/a", "pods/b"), started(true, "pods/c")...), 2, []string{"pods/a", "pods/b"},
		},
	} {
		if got := informers.Unnamed(c.started, map[string]bool{"pods/named": true}, c.count); !slices.Equal(got,
			c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A checkpoint was restored together with its etcd. The bus has more than the API server: the last
// progress shows that, although nothing has changed since the last stream event.
func TestCheckpointAndEtcdAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		first := live(t, s, m, nil)
		s.marks(t)
		pass(3 * time.Minute)
		_ = m.Flush(t.Context())
		saved, _ := m.saved("configmaps")
		s.mu.Lock()
		backup := s.rv
		s.mu.Unlock()
		pass(10 * time.Minute)
		told := first.lastTold(t).Report
		first.end()
		s.do(func() {
			s.history = slices.DeleteFunc(s.history, func(v *version) bool { return v.rv > backup })
			s.rv = backup
		})
		m.mu.Lock()
		m.scopes["configmaps"] = saved
		m.mu.Unlock()
		second := live(t, s, m, asksBus(first, nil))
		second.wait(t, "gap 0 rewound", "scope.started 0", "snapshot.started 1", "r a uid-1 -→1",
			"snapshot.completed 1")
		gap := second.gaps()[0]
		if gap.From != told.Scopes[0].ResourceVersion || gap.Since.Before(told.To) || gap.History != 1 {
			t.Errorf("the gap %+v, the last progress was at %d, %v", gap, told.Scopes[0].ResourceVersion, told.To)
		}
	})
}
