package informers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
)

func TestResumeCompacted(t *testing.T) {
	for name, between := range map[string]bool{"before": false, "between pages": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				for n := range 5 {
					s.put(fmt.Sprint("cm-", n), "1", nil)
				}
				first := live(t, s, m, nil)
				first.wait(t, "snapshot.started 5", "r cm-0 uid-1 -→1", "r cm-1 uid-2 -→1", "r cm-2 uid-3 -→1",
					"r cm-3 uid-4 -→1",
					"r cm-4 uid-5 -→1", "snapshot.completed 5")
				_ = m.Flush(t.Context())
				first.end()
				s.delete("cm-0")
				s.put("cm-1", "2", nil)
				if between {
					s.do(func() {
						s.fault = func(_ http.ResponseWriter, r *http.Request) bool {
							if r.URL.Query().Get("continue") != "" &&
								strings.Contains(r.Referer()+r.URL.RawQuery, "limit=500") {
								s.do(func() { s.compacted, s.fault = s.rv, nil })
							}
							return false
						}
					})
				} else {
					s.compact()
				}
				second := live(t, s, m, nil)
				second.wait(t, "gap 0 compacted", "snapshot.started 4", "r cm-1 uid-2 -→2", "r cm-2 uid-3 -→1",
					"r cm-3 uid-4 -→1",
					"r cm-4 uid-5 -→1", "snapshot.completed 4")
			})
		})
	}
}

// The resourceVersions of a restored etcd are still below the checkpoint, or were assigned again
// with another content.
func TestResumeRewound(t *testing.T) {
	for name, more := range map[string]int{"below": 0, "above": 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				base := s.put("a", "1", nil).rv
				first := live(t, s, m, nil)
				first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
				s.put("a", "2", nil)
				s.put("b", "1", nil)
				first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "u a uid-1 1→2",
					"c b uid-2 -→1")
				_ = m.Flush(t.Context())
				first.end()
				s.restore(base)
				last := "1"
				for n := range more {
					last = fmt.Sprint("other-", n)
					s.put("a", last, nil)
				}
				second := live(t, s, m, nil)
				second.wait(t, "gap 0 rewound", "snapshot.started 1", "r a uid-1 -→"+last, "snapshot.completed 1")
				second.mu.Lock()
				for _, d := range second.deltas {
					if d.Stream != nil && d.Stream.History != 1 || d.Stream == nil && d.History != 1 {
						t.Errorf("%s is not of history 1", short(d))
					}
				}
				second.mu.Unlock()
				_ = m.Flush(t.Context())
				if c, _ := m.saved("configmaps"); c.History != 1 {
					t.Errorf("history %d is saved, want 1", c.History)
				}
			})
		})
	}
}

// The checkpoint was restored together with etcd, or lost: only the bus shows that.
func TestResumeBusKnowsMore(t *testing.T) {
	for name, tc := range map[string]struct {
		saved   bool
		last    informer.LastEvent
		history uint32
		want    string
	}{
		"restored": {saved: true, last: informer.LastEvent{
			Scope:           "configmaps",
			ResourceVersion: 500,
		}, history: 1, want: "gap 0 rewound"},
		"restored again": {
			saved: true, last: informer.LastEvent{
				Scope:           "configmaps",
				ResourceVersion: 90,
				History:         3,
			}, history: 4, want: "gap 0 rewound",
		},
		"lost and restored": {last: informer.LastEvent{
			Scope:           "configmaps",
			ResourceVersion: 500,
			History:         1,
		}, history: 2, want: "gap 0 rewound"},
		"lost, of several scopes": {
			last:    informer.LastEvent{Scope: "configmaps/other", ResourceVersion: 90, History: 1},
			history: 1,
			want:    "gap 0 checkpoint-lost",
		},
		"lost": {last: informer.LastEvent{
			Scope:           "configmaps",
			ResourceVersion: 90,
			History:         1,
		}, history: 1, want: "gap 0 checkpoint-lost"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "1", nil)
				if tc.saved {
					first := live(t, s, m, nil)
					first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
					_ = m.Flush(t.Context())
					first.end()
				}
				second := live(t, s, m, func(o *informers.Options, _ *recorder) {
					o.LastEvent = func(context.Context, *object.Resource) (informer.LastEvent, bool, error) {
						return tc.last, true, nil
					}
				})
				second.wait(t, tc.want, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
				second.mu.Lock()
				defer second.mu.Unlock()
				if got := second.deltas[2].History; got != tc.history {
					t.Errorf("history %d, want %d", got, tc.history)
				}
			})
		})
	}
}

// Events that one scope of a resource sent in this run do not count as events of a previous run for
// another scope, however late it asks. A scope that starts over asks again.
func TestScopesGetTheSameLastEvent(t *testing.T) {
	said := 0
	hear := informers.NewHearing(func(_ context.Context, r *object.Resource) (informer.LastEvent, bool, error) {
		said++
		if said == 1 {
			return informer.LastEvent{}, false, errors.New("not yet")
		}
		return informer.LastEvent{Scope: r.Name + "/x", ResourceVersion: uint64(said)}, said > 2, nil
	})
	configMaps, pods := &object.Resource{Name: "configmaps"}, &object.Resource{Name: "pods"}
	for _, tc := range []struct {
		resource *object.Resource
		scope    string
		rv       uint64
		ok, err  bool
	}{
		{resource: configMaps, scope: "configmaps/x", err: true},
		{resource: configMaps, scope: "configmaps/x", rv: 2},
		{resource: configMaps, scope: "configmaps/y", rv: 2}, // as for x, which may have sent events since
		{resource: configMaps, scope: "configmaps/x", rv: 3, ok: true},
		{resource: configMaps, scope: "configmaps/z", rv: 2},
		{resource: pods, scope: "pods", rv: 4, ok: true},
	} {
		h, ok, err := hear(t.Context(), tc.resource, tc.scope)
		if h.ResourceVersion != tc.rv || ok != tc.ok || (err != nil) != tc.err {
			t.Errorf("%s hears of %d (%t), %v; want %d (%t)", tc.scope, h.ResourceVersion, ok, err, tc.rv, tc.ok)
		}
	}
}

// A bus that has no events of a scope gets a snapshot, and no change is lost.
func TestResumeOnEmptyBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		first := live(t, s, m, nil)
		first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		_ = m.Flush(t.Context())
		first.end()
		s.put("a", "2", nil)
		second := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.LastEvent = func(context.Context, *object.Resource) (informer.LastEvent, bool, error) {
				return informer.LastEvent{}, false, nil
			}
		})
		second.waitPerName(t, "snapshot.started 1", "r a uid-1 -→1", "u a uid-1 1→2", "snapshot.completed 1")
	})
}

// An agent ends while the bus lacks a change, and history is compacted beyond it: the gap begins no
// later than that change.
func TestGapBeginsBeforeWhatTheBusLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		first := live(t, s, m, func(*informers.Options, *recorder) {})
		first.awaitCaptured(t)
		first.mu.Lock()
		first.held = true
		first.mu.Unlock()
		s.put("lost", "1", nil)
		lost := time.Now()
		s.delete("lost")
		for range 120 {
			pass(time.Minute)
			s.bookmark()
		}
		pass(time.Second)
		_ = m.Flush(t.Context())
		first.end()
		s.put("a", "2", nil)
		s.compact()
		second := live(t, s, m, func(*informers.Options, *recorder) {})
		second.awaitCaptured(t)
		for _, d := range second.ofScope("configmaps") {
			if e := d.Stream; e != nil && e.Kind == object.Gap {
				if early := lost.Sub(e.Since); early < 0 || early > time.Second {
					t.Errorf("the gap begins at %v, and the change that is missing was made at %v", e.Since, lost)
				}
				return
			}
		}
		t.Error("no gap")
	})
}
