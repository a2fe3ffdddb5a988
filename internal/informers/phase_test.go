package informers_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// strictHandler fails a test in which a phase changes in a way that the table of phases does not
// allow.
type strictHandler struct {
	slog.Handler
	t *testing.T
}

func strict(t *testing.T, log *slog.Logger) *slog.Logger {
	return slog.New(strictHandler{log.Handler(), t})
}

func (h strictHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || h.Handler.Enabled(ctx, level)
}

func (h strictHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == informer.IllegalChange || r.Message == store.IllegalChange {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool {
			text += " " + a.String()
			return true
		})
		h.t.Error(text)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h strictHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return strictHandler{h.Handler.WithAttrs(attrs), h.t}
}

func (h strictHandler) WithGroup(name string) slog.Handler {
	return strictHandler{h.Handler.WithGroup(name), h.t}
}

// A relist is not shown as live while it waits for the API server, nor while the bus has not
// acknowledged the gap. Changes may wait for the gap or not.
func TestPhasesOfARelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.put("a", "1", nil)
		l := live(t, s, newMemory(), nil)
		l.awaitCaptured(t)
		l.awaitPhases(t, "configmaps live")
		answer := make(chan struct{})
		s.do(func() {
			s.fault = func(_ http.ResponseWriter, r *http.Request) bool {
				if isList(r) {
					select {
					case <-answer:
					case <-r.Context().Done():
					}
				}
				return false
			}
		})
		l.hold(isGap)
		s.compact()
		s.put("a", "2", nil)
		l.awaitPhases(t, "configmaps relisting")
		pass(2 * time.Minute)
		l.awaitPhases(t, "configmaps relisting")
		pass(time.Minute)
		l.awaitPhases(t, "configmaps relisting stale timeout")
		if err := l.set.Ready(); err == nil {
			t.Error("ready while the list is not answered")
		}
		close(answer)
		l.awaitPhases(t, "configmaps announcing")
		want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "gap 0 expired"}
		l.wait(t, want...)
		s.put("b", "1", nil)
		pass(time.Second)
		s.put("c", "1", nil)
		pass(20 * time.Minute) // the watch ends meanwhile, which does not count as silence
		l.awaitPhases(t, "configmaps announcing")
		l.acknowledge()
		l.awaitPhases(t, "configmaps live")
		l.waitPerName(t, append(want, "u a uid-1 1→2", "c b uid-2 -→1", "c c uid-3 -→1")...)
	})
}

// While the bus has not acknowledged the start of a snapshot, the phase is announcing, for the
// first one and for one on demand.
func TestPhaseOfASnapshotThatBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		isStart := func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.SnapshotStarted }
		l := live(t, s, newMemory(), func(_ *informers.Options, r *recorder) { r.hold(isStart) })
		l.awaitPhases(t, "configmaps announcing")
		if st := l.set.Status()[0]; !st.Synced || st.Captured {
			t.Errorf("%+v", st)
		}
		l.acknowledge()
		l.awaitCaptured(t)
		l.awaitPhases(t, "configmaps live")
		l.hold(isStart)
		go func() { _, _ = l.set.Snapshot(t.Context(), "configmaps", "") }()
		l.awaitPhases(t, "configmaps announcing")
		l.acknowledge()
		l.awaitPhases(t, "configmaps live")
	})
}

// While its first list fails, a scope is waiting, and its status has the reason and the time of the
// first failure.
func TestHealthOfAFirstListThatFails(t *testing.T) {
	for want, c := range map[string]struct {
		code   int
		reason metav1.StatusReason
	}{
		"configmaps waiting failing server_error": {
			http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		},
		"configmaps waiting forbidden forbidden":  {http.StatusForbidden, metav1.StatusReasonForbidden},
		"configmaps waiting notserved not_found":  {http.StatusNotFound, metav1.StatusReasonNotFound},
		"configmaps waiting failing unauthorized": {http.StatusUnauthorized, metav1.StatusReasonUnauthorized},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				s.do(func() {
					s.fault = func(w http.ResponseWriter, r *http.Request) bool {
						if isList(r) {
							fail(w, c.code, c.reason)
						}
						return isList(r)
					}
				})
				began := time.Now()
				l := live(t, s, newMemory(), nil)
				pass(10 * time.Minute)
				l.awaitPhases(t, want)
				if st := l.set.Status()[0]; st.Since.Sub(began) > time.Second || st.Since.Before(began) ||
					st.Failures < 2 || st.Synced {
					t.Errorf("%+v, want failures since %v", st, began)
				}
				s.do(func() { s.fault = nil })
				pass(time.Minute)
				l.awaitCaptured(t)
				l.awaitPhases(t, "configmaps live")
				if st := l.set.Status()[0]; !st.Since.IsZero() {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}
