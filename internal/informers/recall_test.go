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
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// asksBus makes a run ask for the last events and the last progress that another run has recorded.
func asksBus(bus *life, change func(*informers.Options, *recorder)) func(*informers.Options, *recorder) {
	return func(o *informers.Options, r *recorder) {
		o.LastEvent = func(_ context.Context, of *object.Resource) (scope.LastEvent, bool, error) { return bus.lastEvent(of) }
		o.LastProgress = bus.lastProgress
		r.scopes = true
		if change != nil {
			change(o, r)
		}
	}
}

// lastProgress returns the last progress, as on a bus that has all of it.
func (r *recorder) lastProgress(context.Context) (all []scope.PreviousScope, err error) {
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
		all = append(all, scope.PreviousScope{
			Resource: s.Resource.String(), Scope: s.Scope, Count: s.Count, ResourceVersion: s.ResourceVersion, History: s.History, To: to,
		})
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
		second.wait(t, "gap 0 checkpoint-lost", "scope.started 0", "snapshot.started 1", "r a uid-1 -→3", "snapshot.completed 1")
		gap := second.gaps()[0]
		if gap.From != told.Scopes[0].ResourceVersion || gap.Since.Before(told.To) {
			t.Errorf("the gap begins at %d, %v; the last progress was at %d, %v", gap.From, gap.Since, told.Scopes[0].ResourceVersion, told.To)
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
			[]string{"configmaps ends, replaced configmaps?labelSelector=colour=red", "configmaps?labelSelector=colour=red starts, after a gap"},
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
				second := live(t, s, newMemory(), asksBus(first, func(o *informers.Options, _ *recorder) { c.change(&o.Rules[0]) }))
				pass(time.Minute)
				var got []string
				second.mu.Lock()
				for _, d := range second.deltas {
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
				second.mu.Unlock()
				slices.Sort(got)
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("-want +got:\n%s", d)
				}
			})
		})
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
		second.wait(t, "gap 0 rewound", "scope.started 0", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		gap := second.gaps()[0]
		if gap.From != told.Scopes[0].ResourceVersion || gap.Since.Before(told.To) || gap.History != 1 {
			t.Errorf("the gap %+v, the last progress was at %d, %v", gap, told.Scopes[0].ResourceVersion, told.To)
		}
	})
}
