package informers_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/store"
)

// held records what a manager holds for each scope: lanes and metric series.
type held struct {
	mu    sync.Mutex
	lanes map[string]bool
	reg   *prometheus.Registry
}

func (h *held) use(o *informers.Options, r *recorder) {
	h.lanes, h.reg = map[string]bool{}, prometheus.NewPedanticRegistry()
	o.Registerer = h.reg
	o.Lane = func(name string) store.Lane {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.lanes[name] = true
		return r
	}
	o.ReleaseLane = func(name string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.lanes, name)
	}
}

// scopes returns the scopes for which anything is held.
func (h *held) scopes(t *testing.T) []string {
	t.Helper()
	h.mu.Lock()
	all := maps.Clone(h.lanes)
	h.mu.Unlock()
	delete(all, "progress:") // the lane of the agent
	families, err := h.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if l.GetName() == "scope" {
					all[l.GetValue()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// await waits until only these scopes are held, and no retired scope is kept.
func (h *held) await(t *testing.T, l *life, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Log(cmp.Diff(want, got))
		}
	}()
	eventually(t, "nothing to be held but of what is observed", func() bool {
		got = h.scopes(t)
		return slices.Equal(got, want) && informers.Retired(l.set) == 0
	})
}

// A selection that changes again and again leaves nothing of the previous scopes.
func TestReloadsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newAPIServer(t), new(held)
		s.put("a", "1", map[string]string{"n": "0"})
		l := live(t, s, newMemory(), func(o *informers.Options, r *recorder) {
			takes(rule(nil))(o, r)
			h.use(o, r)
		})
		l.awaitCaptured(t)
		for n := range 5 {
			s.put("a", fmt.Sprint(n), nil)
			l.reload(t, specOf(rule(selected(fmt.Sprint("n=", n), ""))))
			s.put("a", fmt.Sprint(n, "+"), nil)
			h.await(t, l, fmt.Sprint("configmaps?labelSelector=n=", n))
		}
	})
}

// Definitions that come and go leave nothing, also if the watch on them ends in between.
func TestDefinitionsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newCustoms(t), new(held)
		l := live(t, s.apiServer, newMemory(), func(o *informers.Options, r *recorder) {
			takes(widgets(nil))(o, r)
			h.use(o, r)
		})
		for range 3 {
			s.define(true)
			h.await(t, l, "widgets.shop.test")
			l.awaitPhases(t, "widgets.shop.test live")
			s.define(false)
			s.CloseClientConnections()
			h.await(t, l)
		}
	})
}

// Namespaces that come and go leave nothing if a resource is observed in each separately.
func TestNamespacesLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newTenants(t, "other"), new(held)
		s.putIn("", "other", "", nil)
		l := live(t, s.apiServer, newMemory(), func(o *informers.Options, r *recorder) {
			globs("")(o, r)
			h.use(o, r)
		})
		h.await(t, l, "configmaps/other")
		for range 3 {
			s.allow("shop", true)
			s.putIn("", "shop", "", nil)
			h.await(t, l, "configmaps/other", "configmaps/shop")
			s.deleteIn("", "shop")
			s.bookmark()
			h.await(t, l, "configmaps/other")
		}
	})
}
