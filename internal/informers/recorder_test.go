package informers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// recorder is a lane that records what it takes and acknowledges it at once, unless it is held.
type recorder struct {
	mu     sync.Mutex
	change chan struct{} // closed and replaced at each change
	deltas []*object.Delta
	told   []*object.Delta // the progress of the agent
	room   int             // how many more it takes
	scopes bool            // it records scope.started and scope.ended too

	held    bool                       // deltas of objects are not acknowledged
	holds   func(d *object.Delta) bool // nor are these; nil: none
	unacked []*object.Delta

	noProgress bool // progress is not acknowledged

	cut object.StreamKind // startedScopes does not find these
}

const unbounded = 1 << 30

func newRecorder() *recorder { return &recorder{room: unbounded, change: make(chan struct{})} }

func (r *recorder) take(d *object.Delta) {
	if d.Report != nil {
		r.told = append(r.told, d)
		if !r.noProgress {
			d.Acker.Acked(d)
		}
		r.touch()
		return
	}
	if d.Stream == nil && d.Scope == "" {
		panic("a delta without a scope: a gap behind its dead letter could not be told")
	}
	if !r.hides(d) {
		r.room--
		r.deltas = append(r.deltas, d)
	}
	switch {
	case d.Acker == nil:
	case r.held && d.Stream == nil, r.holds != nil && r.holds(d):
		r.unacked = append(r.unacked, d)
	default:
		d.Acker.Acked(d)
	}
	r.touch()
}

// hides reports whether a delta is not recorded, and needs no room.
func (r *recorder) hides(d *object.Delta) bool {
	if d.Report != nil {
		return true
	}
	scope := d.Stream != nil && (d.Stream.Kind == object.ScopeStarted || d.Stream.Kind == object.ScopeEnded)
	return scope && !r.scopes
}

func (r *recorder) touch() {
	close(r.change)
	r.change = make(chan struct{})
}

func (r *recorder) setRoom(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.room = n
	r.touch()
}

// acknowledge acknowledges the deltas that were held, and stops holding.
func (r *recorder) acknowledge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.unacked {
		d.Acker.Acked(d)
	}
	r.held = false
	r.holds = nil
	r.unacked = nil
}

// until waits until cond returns true. cond is called with mu held.
func (r *recorder) until(ctx context.Context, cond func() bool) error {
	for {
		r.mu.Lock()
		if cond() {
			r.mu.Unlock()
			return nil
		}
		change := r.change
		r.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *recorder) Put(ctx context.Context, _ string, _ int, d *object.Delta) error {
	return r.until(ctx, func() bool {
		if r.room == 0 && !r.hides(d) {
			return false
		}
		r.take(d)
		return true
	})
}

func (r *recorder) TryPut(_ string, _ int, d *object.Delta) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room == 0 {
		return false
	}
	r.take(d)
	return true
}

func (r *recorder) Room() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room > 0 {
		now := make(chan struct{})
		close(now)
		return now
	}
	return r.change
}

// wait waits until the short forms of the recorded deltas are those of want.
func (r *recorder) wait(t *testing.T, want ...string) {
	t.Helper()
	r.compare(t, want, func([]string) {})
}

// waitPerName is like wait, but deltas of different names, and stream events, may come in any
// order.
func (r *recorder) waitPerName(t *testing.T, want ...string) {
	t.Helper()
	r.compare(t, want, func(all []string) {
		slices.SortStableFunc(all, func(a, b string) int {
			return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1])
		})
	})
}

// compare waits until there are as many deltas as in want, and until all other goroutines wait.
// Then it applies order to both, and requires them to be equal.
func (r *recorder) compare(t *testing.T, want []string, order func([]string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := r.until(ctx, func() bool { return len(r.deltas) >= len(want) })
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for _, d := range r.deltas {
		got = append(got, short(d))
	}
	order(got)
	order(want)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("deltas (%v):\n  %s\nwant:\n  %s", err, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// short formats a delta as "op name uid before→after", with ~ in front if it is inferred.
func short(d *object.Delta) string {
	if e := d.Stream; e != nil {
		return strings.TrimSpace(fmt.Sprintf("%s %d %s", e.Kind, e.Objects, e.Reason))
	}
	inferred := ""
	if d.Inferred {
		inferred = "~"
	}
	return fmt.Sprintf("%s%s %s %s %s→%s", inferred, d.Op, d.Ref.Name(), d.Ref.UID, valueOf(d.Before), valueOf(d.After))
}

func valueOf(o *object.Object) string {
	if o == nil {
		return "-"
	}
	b, err := o.AppendJSON(nil)
	if err != nil {
		return err.Error()
	}
	var v struct {
		Kind, APIVersion string
		Metadata         struct{ ManagedFields []any }
		Data             struct{ Value, Form string }
	}
	known := []string{"ConfigMap v1", "Node v1", "Widget shop.test/v1"}
	if err := json.Unmarshal(b, &v); err != nil || !slices.Contains(known, v.Kind+" "+v.APIVersion) ||
		v.Metadata.ManagedFields != nil {
		return fmt.Sprintf("(%v: %s)", err, b)
	}
	return v.Data.Value + v.Data.Form
}

type pattern string

func (p pattern) Match(group, _, resource string) bool {
	return p == "*" || string(p) == resource && group == ""
}
func (p pattern) String() string { return string(p) }

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// start runs a Manager over the fake server's configmaps until the test ends.
func start(
	t *testing.T, s *apiServer, change func(*informers.Options),
) (*informers.Manager, *recorder, *prometheus.Registry) {
	t.Helper()
	rec, reg := newRecorder(), prometheus.NewPedanticRegistry()
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
		Snapshot:   informer.SnapshotInitial,
		Lane:       func(string) store.Lane { return rec },
		Log:        slog.New(slog.NewTextHandler(testLog{t}, nil)),
		Registerer: reg,
	}
	if change != nil {
		change(&o)
	}
	o.Log = strict(t, o.Log)
	set, err := informers.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- set.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return set, rec, reg
}
