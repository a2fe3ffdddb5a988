package informers_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// memory is the storage that survives a run. It has the state at the last Flush.
type memory struct {
	mu      sync.Mutex
	scopes  map[string]checkpoint.Scope
	tracked map[string]func() (checkpoint.Position, bool)
}

func newMemory() *memory { return &memory{scopes: map[string]checkpoint.Scope{}} }

func (m *memory) Scopes() map[string]checkpoint.Scope {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracked = map[string]func() (checkpoint.Position, bool){}
	return maps.Clone(m.scopes)
}

func (m *memory) Track(scope string, position func() (checkpoint.Position, bool), _ func() uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracked[scope] = position
}

func (m *memory) Forget(scope string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.scopes, scope)
	delete(m.tracked, scope)
}

func (m *memory) Flush(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for scope, position := range m.tracked {
		if p, ok := position(); ok {
			m.scopes[scope] = p.Scope
		}
	}
	return nil
}

func (m *memory) saved(scope string) (checkpoint.Scope, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.scopes[scope]
	return c, ok
}

// histories returns the saved history numbers, by scope.
func (m *memory) histories() map[string]uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]uint32{}
	for name, c := range m.scopes {
		out[name] = c.History
	}
	return out
}

// lastHistory returns the highest history number that is saved, or (runs) that a running scope has.
func (m *memory) lastHistory(runs bool) (n uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.scopes {
		n = max(n, c.History)
	}
	for _, position := range m.tracked {
		if p, ok := position(); runs && ok {
			n = max(n, p.History)
		}
	}
	return n
}

// unfinished returns the scopes with a tombstone, and the ids of snapshots, that the next run
// begins or continues.
func (m *memory) unfinished() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, c := range m.scopes {
		if c.Retiring != nil && c.Retiring.Announced {
			out = append(out, name)
		}
		if c.Snapshot != nil {
			out = append(out, c.Snapshot.ID)
		}
	}
	return out
}

// behind returns the saved resourceVersions of scopes that have not sent all that their last list
// found.
func (m *memory) behind(all []informer.Status) map[string]uint64 {
	out := map[string]uint64{}
	for _, st := range all {
		c, ok := m.saved(st.Scope)
		if ok && (st.Pending > 0 || st.Phase != informer.PhaseLive && st.Phase != informer.PhaseBlocked) {
			out[st.Scope] = c.ResourceVersion
		}
	}
	return out
}

// life is one run of a manager.
type life struct {
	*recorder
	set  *informers.Manager
	part func(group, resource string) selection.Part
	end  func()
}

// live runs a manager until end, which does not save: only the state at the last Flush survives.
func live(t *testing.T, s *apiServer, m *memory, change func(*informers.Options, *recorder)) *life {
	t.Helper()
	rec := newRecorder()
	o := informers.Options{
		Config: s.config(),
		Spec: selection.Spec{
			Rules: []selection.Rule{{
				Resources: []selection.Pattern{pattern("configmaps")}, Namespaces: func(string) bool {
					return true
				}, AllNamespaces: true,
			}},
			Strip:   []string{"metadata.managedFields"},
			Secrets: true,
		},
		Snapshot: informer.SnapshotInitial, Memory: m,
		Lane: func(string) store.Lane { return rec },
		Log:  slog.New(slog.NewTextHandler(testLog{t}, nil)), Registerer: prometheus.NewPedanticRegistry(),
	}
	if change != nil {
		change(&o, rec)
	}
	o.Log = strict(t, o.Log)
	set, err := informers.New(o)
	if err != nil {
		t.Fatal(err)
	}
	informers.Hasten(set)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- set.Run(ctx) }()
	var views sync.WaitGroup
	views.Go(func() { informers.CompareViews(ctx, t, set, betweenEvents) })
	l := &life{recorder: rec, set: set, part: o.Part}
	l.end = sync.OnceFunc(func() {
		cancel()
		views.Wait()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(l.end)
	return l
}

// betweenEvents returns when all else waits: in a bubble, time passes only then, and nothing else
// is due at such a time.
func betweenEvents() { <-time.After(23456789 * time.Nanosecond) }

// gone refuses watches from below rv with 410, like a restarted server. Lists still have the past
// revisions.
func (s *apiServer) gone(rv uint64) {
	s.do(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			from, _ := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
			if r.URL.Query().Get("watch") == "" || from >= rv {
				return false
			}
			fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", status(http.StatusGone, metav1.StatusReasonExpired))
			return true
		}
	})
	s.CloseClientConnections()
}

// lastSave is the memory of a run that crashes after a save. Later saves have no effect.
type lastSave struct {
	*memory
	until   func(checkpoint.Scope) bool
	crashed bool
}

func (m *lastSave) Flush(ctx context.Context) error {
	if m.crashed {
		return nil
	}
	err := m.memory.Flush(ctx)
	c, _ := m.saved("configmaps")
	m.crashed = m.until(c)
	return err
}
