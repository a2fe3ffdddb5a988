package informers_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// An informer that drains ends as soon as it rests, although another one of the same objects does not: it sends nothing more as it was
// configured before.
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
		eventually(t, "the object of the other namespace", func() bool { return len(l.ofScope("configmaps/other")) == 3 })
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

// The first snapshot is not complete before what may be read in some namespaces only is observed there.
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

// A resource that was created while the set ran, and cannot be listed, holds back nothing.
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
				i := slices.IndexFunc(l.set.Status(), func(st scope.Status) bool { return st.Scope == "widgets.shop.test" })
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
