package informers_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// An informer ends as soon as it has drained, even if another one of the same objects has not: it
// sends nothing more under its previous configuration.
func TestDrainEndsEachInformerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.putIn("other", "x", "1", map[string]string{"red": "1"})
		s.put("a", "1", nil)
		answer := make(chan struct{})
		s.do(func() {
			s.fault = func(_ http.ResponseWriter, r *http.Request) bool {
				if isList(r) && strings.Contains(r.URL.Path, "/namespaces/other/") {
					select {
					case <-answer:
					case <-r.Context().Done():
					}
				}
				return false
			}
		})
		in := inNamespaces("other", "shop")
		l := live(t, s, newMemory(), func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(in) })
		informers.Impatient(l.set)
		l.wait(t, "snapshot.started 1", "r a uid-2 -→1", "snapshot.completed 1")
		l.hold(func(d *object.Delta) bool { return d.Stream == nil && d.Ref.Namespace() == "shop" })
		s.put("a", "2", nil)
		l.wait(t, "snapshot.started 1", "r a uid-2 -→1", "snapshot.completed 1", "u a uid-2 1→2")
		l.reload(t, specOf(rule(func(r *selection.Rule) {
			in(r)
			r.Redact = []string{"metadata.labels"}
		})))
		close(answer)
		pass(time.Minute)
		if got := l.ofScope("configmaps/other"); len(got) > 0 {
			t.Errorf("sent while another informer drains: %s", short(got[0]))
		}
		l.acknowledge()
		eventually(t, "the object of the other namespace", func() bool {
			return len(l.ofScope("configmaps/other")) == 3
		})
		for _, d := range l.ofScope("configmaps/other") {
			if d.Stream != nil {
				continue
			}
			if b, err := d.After.AppendJSON(nil); err != nil || strings.Contains(string(b), "red") {
				t.Errorf("%s has labels, which are redacted (%v)", b, err)
			}
		}
	})
}

// The first snapshot is not complete before resources that may be read only in some namespaces are
// observed there.
func TestCapturedWaitsForNamespaces(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s, m := newTenants(t, "shop"), newMemory()
			for _, ns := range []string{"shop", "other"} {
				s.putIn("", ns, "", nil)
				s.putIn(ns, "cm", "1", nil)
			}
			l := live(t, s.apiServer, m, globs(""))
			<-l.set.Captured()
			if !l.has("r cm uid-2 -→1") {
				t.Fatal("captured before the object is read")
			}
		})
	}
}

// A resource that was created while the manager ran, and cannot be listed, does not hold back
// others.
func TestCreatedResourceThatCannotBeListed(t *testing.T) {
	for want, code := range map[string]int{
		"widgets.shop.test waiting failing server_error": http.StatusInternalServerError,
		"widgets.shop.test waiting forbidden forbidden":  http.StatusForbidden,
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCustoms(t)
				s.refuse(code, "")
				l := live(t, s.apiServer, newMemory(), takes(widgets(nil)))
				s.define(true)
				l.awaitPhases(t, want)
				pass(30 * time.Minute)
				l.awaitPhases(t, want)
				if err := l.set.Ready(); err != nil {
					t.Errorf("not ready: %v", err)
				}
				select {
				case <-l.set.Captured():
				default:
					t.Error("not captured")
				}
				i := slices.IndexFunc(l.set.Status(), func(st informer.Status) bool {
					return st.Scope == "widgets.shop.test"
				})
				if st := l.set.Status()[i]; st.Synced {
					t.Errorf("%+v", st)
				}
				s.refuse(0, "")
				pass(2 * time.Minute)
				l.awaitPhases(t, "widgets.shop.test live")
			})
		})
	}
}

// A scope that continues at the position of another selection sends the history from there on,
// although its resource was defined again since.
func TestContinuesFromBeforeTheDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCustoms(t)
		s.define(true)
		s.put("a", "1", map[string]string{"in": "1"})
		l := live(t, s.apiServer, newMemory(), takes(widgets(nil)))
		informers.Impatient(l.set)
		l.awaitPhases(t, "widgets.shop.test live")
		l.hold(func(d *object.Delta) bool { return d.Stream == nil })
		from := s.put("b", "1", nil).rv
		eventually(t, "the change to be sent", func() bool { return l.has("c b uid-2 -→1") })
		l.reload(t, specOf(widgets(selected("in=1", "")))) // waits for the bus
		deleted := s.delete("a").rv
		s.define(false)
		s.define(true)
		s.expire(s.put("c", "1", map[string]string{"in": "1"}).rv) // watches, not lists
		synctest.Wait()
		l.acknowledge()
		l.awaitPhases(t, "widgets.shop.test?labelSelector=in=1 live")
		eventually(t, "the object of the new definition", func() bool { return l.has("c c uid-3 -→1") })
		for _, d := range l.ofScope("widgets.shop.test?labelSelector=in=1") {
			if isGap(d) && d.Stream.From != from {
				t.Errorf("a gap begins at %d, want %d", d.Stream.From, from)
			}
			if d.Stream == nil && d.Op == object.Deleted && (d.Inferred || d.ResourceVersion != deleted) {
				t.Errorf("%s at %d, want it at %d, and not inferred", short(d), d.ResourceVersion, deleted)
			}
		}
		if !l.has("d a uid-1 1→-") {
			t.Error("the deletion was not sent")
		}
	})
}

// A deletion that a crashed run has sent is sent again as an inferred left at its resourceVersion,
// if history no longer shows whether the object was deleted.
func TestDeletionIsSentAgainAsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", map[string]string{"in": "1"})
		in := takes(rule(selected("in=1", "")))
		l := live(t, s, m, in)
		l.awaitCaptured(t)
		_ = m.Flush(t.Context())
		deleted := s.delete("a").rv
		eventually(t, "the deletion", func() bool { return l.has("d a uid-1 1→-") })
		l.end()
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				gone := isList(r) && strings.Contains(r.URL.Query().Get("fieldSelector"), "metadata.name")
				if gone {
					fail(w, http.StatusGone, metav1.StatusReasonExpired)
				}
				return gone
			}
		})
		again := live(t, s, m, in)
		again.wait(t, "~l a uid-1 1→-")
		if at := again.deltas[0].ResourceVersion; at != deleted {
			t.Errorf("sent again at resourceVersion %d, want %d", at, deleted)
		}
	})
}
