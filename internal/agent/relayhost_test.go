package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/bus/subscription"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// fakeRelay runs as often as it is opened, and fails at first.
type fakeRelay struct {
	failures int64 // left
	runs     atomic.Int64
	times    chan time.Time
}

func (f *fakeRelay) Ready() error { return nil }

func (f *fakeRelay) Run(ctx context.Context) error {
	f.times <- time.Now()
	if f.runs.Add(1) <= f.failures {
		return errors.New("the receiver is gone for good")
	}
	<-ctx.Done()
	return nil
}

// A relay that fails is started again after growing pauses, and shown. The others are not affected.
func TestRelayHostRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&logged, nil))
		h := NewRelayHost([]config.Relay{{Name: "good"}, {Name: "bad"}, {Name: "unopened"}}, log)
		bad := &fakeRelay{failures: 3, times: make(chan time.Time, 10)}
		good := &fakeRelay{times: make(chan time.Time, 10)}
		open := func(r *config.Relay) (Runner, error) {
			switch r.Name {
			case "good":
				return good, nil
			case "bad":
				return bad, nil
			}
			return nil, errors.New("no such bus")
		}
		ready := func() map[string]error {
			all := map[string]error{}
			for _, p := range h.Probes() {
				if !p.Aside {
					t.Errorf("%s makes the agent unready", p.Name)
				}
				all[p.Name] = p.Ready()
			}
			return all
		}
		if err := ready()["relay good"]; !errors.Is(err, errNotStarted) {
			t.Errorf("before the start: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(ended)
			h.Run(ctx, nil, open)
		}()
		synctest.Wait()
		if r := ready(); r["relay good"] != nil || r["relay bad"] == nil ||
			!strings.Contains(r["relay bad"].Error(), "gone for good") || r["relay unopened"] == nil {
			t.Errorf("after the first failure: %v", r)
		}
		for i, want := range []time.Duration{0, 5 * time.Second, 15 * time.Second, 35 * time.Second} {
			if got := (<-bad.times).Sub(began); got != want {
				t.Errorf("run %d after %v, want %v", i+1, got, want)
			}
		}
		synctest.Wait()
		if r := ready(); r["relay bad"] != nil {
			t.Errorf("once it runs: %v", r)
		}
		stop()
		<-ended
		if n := good.runs.Load(); n != 1 {
			t.Errorf("the good one ran %d times", n)
		}
		if got := strings.Count(logged.String(), `"relay":"bad"`); got != 3 {
			t.Errorf("%d lines about the bad one, want 3:\n%s", got, logged.String())
		}
	})
}

// fixedFence always has one answer.
type fixedFence struct{ err error }

func (f *fixedFence) Pass(context.Context) error { return f.err }

// elsewhere is a relay whose cursor is taken each time.
type elsewhere struct{ runs atomic.Int64 }

func (e *elsewhere) Ready() error { return nil }

func (e *elsewhere) Run(context.Context) error {
	e.runs.Add(1)
	return fmt.Errorf("%w: on another host", subscription.ErrElsewhere)
}

// A former leader may take the cursor of a relay late. The new one takes it back, once.
func TestRelayTakesItsCursorBack(t *testing.T) {
	for name, test := range map[string]struct {
		fence *fixedFence
		want  int64
	}{
		"no election":   {nil, 1},
		"leads":         {&fixedFence{}, 2},
		"does not lead": {&fixedFence{leader.ErrLost}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := NewRelayHost([]config.Relay{{Name: "r"}}, slog.New(slog.DiscardHandler))
				var fence publish.Fence
				if test.fence != nil {
					fence = test.fence
				}
				e := new(elsewhere)
				h.Run(t.Context(), fence, func(*config.Relay) (Runner, error) { return e, nil }) // until it gives up
				if n := e.runs.Load(); n != test.want || h.Probes()[0].Ready() == nil {
					t.Errorf("it ran %d times, want %d; ready: %v", n, test.want, h.Probes()[0].Ready())
				}
			})
		})
	}
}

// /readyz shows a failing check that is aside, and the agent remains ready.
func TestReadyWithoutRelay(t *testing.T) {
	set, err := newIdleInformers(config.Default(), &rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	failing := func() error { return errors.New("no receiver") }
	for _, aside := range []bool{true, false} {
		w := httptest.NewRecorder()
		admin.New(admin.Options{
			Registry: prometheus.NewRegistry(), Checks: admin.NewChecks(nil, admin.Probe{
				Name:  "relay x",
				Ready: failing,
				Aside: aside,
			}), Informers: set,
		}).Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
		want := http.StatusServiceUnavailable
		if aside {
			want = http.StatusOK
		}
		if w.Code != want || !strings.HasPrefix(w.Body.String(), "[-] relay x: no receiver\n") {
			t.Errorf("aside %v: %d %s", aside, w.Code, w.Body)
		}
	}
}
