package informers_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// customs is an API server that serves widgets.shop.test from the history of its ConfigMaps while
// they are defined.
type customs struct {
	*apiServer

	frames  []frame // of a watch on definitions; under mu
	defined bool    // under mu
	builtIn bool    // there is no definition, although they are served; under mu
	made    int     // how often widgets were defined; under mu

	generation int // of the definition; under mu
	// answers requests for widgets; nil: they are served
	refused atomic.Pointer[func(w http.ResponseWriter, r *http.Request)]
}

// frame is a frame of a watch.
type frame struct {
	rv   uint64
	text string
}

func newCustoms(t *testing.T) *customs {
	s := &customs{apiServer: newAPIServer(t), generation: 1}
	s.fault = s.answer
	return s
}

// refuse makes requests for widgets fail. Code 0 ends this.
func (s *customs) refuse(code int, reason metav1.StatusReason) {
	if code == 0 {
		s.refused.Store(nil)
		return
	}
	answer := func(w http.ResponseWriter, _ *http.Request) { fail(w, code, reason) }
	s.refused.Store(&answer)
}

// define creates the definition of widgets (true) or deletes it (false).
func (s *customs) define(is bool) {
	if is {
		s.show("ADDED", true)
	} else {
		s.show("DELETED", true)
	}
}

// show changes the definition of widgets, and sends the event on watches of definitions.
// established is the status of its condition.
func (s *customs) show(typ string, established bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	s.defined = typ != "DELETED"
	if typ == "ADDED" {
		s.made++
	}
	s.frames = append(s.frames, frame{
		s.rv,
		fmt.Sprintf(
			`{"type":%q,"object":{"metadata":{"name":"widgets.shop.test","uid":%q,"resourceVersion":"%d","generation":%d},`+
				`"spec":{"group":"shop.test","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true}]},`+
				`"status":{"conditions":[{"type":"Established","status":%q}]}}}`+"\n", typ, s.uidLocked(), s.rv,
			s.generation, map[bool]string{true: "True", false: "False"}[established]),
	})
	s.changed.Broadcast()
}

// uidLocked returns the uid of the last definition. It must be called with mu held.
func (s *customs) uidLocked() string { return strings.Repeat("crd", s.made) }

func (s *customs) answer(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	defined := s.defined
	builtIn := s.builtIn
	rv := s.rv
	uid := s.uidLocked()
	generation := s.generation
	s.mu.Unlock()
	refused := s.refused.Load()
	switch {
	case r.URL.Path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions":
		if r.URL.Query().Get("watch") != "" {
			s.watchDefinitions(w, r)
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		items := ""
		if defined && !builtIn {
			items = fmt.Sprintf(
				`{"metadata":{"name":"widgets.shop.test","uid":%q,"resourceVersion":"1","generation":%d}}`, uid,
				generation)
		}
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%d"},"items":[%s]}`, rv, items)
	case strings.HasPrefix(r.URL.Path, "/apis/shop.test/v1/") && defined && refused != nil:
		(*refused)(w, r)
	case !defined || !strings.HasPrefix(r.URL.Path, "/apis"):
		return false
	case r.URL.Path == "/apis":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w,
			`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"shop.test","versions":[{"groupVersion":"shop.test/v1","version":"v1"}],`+
				`"preferredVersion":{"groupVersion":"shop.test/v1","version":"v1"}}]}`)
	case r.URL.Path == "/apis/shop.test/v1":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"shop.test/v1","resources":[`+
			`{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["list","watch"]}]}`)
	case r.URL.Path == "/apis/shop.test/v1/widgets":
		r.URL.Path = "/api/v1/configmaps"
		r.Header.Set(withoutKind, "true")
		return false
	default:
		return false
	}
	return true
}

func (s *customs) watchDefinitions(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := make(chan struct{})
	defer close(done)
	go func() { // wakes Wait when the client is gone
		select {
		case <-r.Context().Done():
			s.do(s.changed.Broadcast) // with mu held: otherwise it may come between the check and Wait
		case <-done:
		}
	}()
	rv, _ := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for next := 0; r.Context().Err() == nil; {
		if next >= len(s.frames) {
			s.changed.Wait()
			continue
		}
		if f := s.frames[next]; f.rv > rv {
			s.mu.Unlock() // the client may not read
			fmt.Fprint(w, f.text)
			w.(http.Flusher).Flush()
			s.mu.Lock()
		}
		next++
	}
}

// written is a pattern as in a configuration. Without a group, it matches in every group unless it
// is own.
type written struct {
	text string
	own  bool // a name that Kubernetes itself serves
}

func (w written) String() string { return w.text }

func (w written) Match(group, version, resource string) bool {
	name, _, _ := strings.Cut(w.text, ".")
	return group != "" && version == "v1" && !w.own && (name == "*" || name == resource)
}

// widgets returns a rule for widgets.
func widgets(change func(*selection.Rule)) selection.Rule {
	return rule(func(r *selection.Rule) {
		r.Resources = []selection.Pattern{written{text: "widgets.shop.test"}}
		if change != nil {
			change(r)
		}
	})
}

func takes(rules ...selection.Rule) func(*informers.Options, *recorder) {
	return func(o *informers.Options, _ *recorder) { o.Rules = rules }
}

// expire refuses watches on widgets from below rv with 410, as after a change of their definition.
func (s *customs) expire(rv uint64) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
		r.URL.Path = "/api/v1/configmaps"
		switch watches := r.URL.Query().Get("watch") != ""; {
		case watches && from < rv:
			fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", status(http.StatusGone, metav1.StatusReasonExpired))
		case watches:
			s.watch(w, r)
		default:
			s.list(w, r)
		}
	}
	s.refused.Store(&answer)
}

// A change of a definition causes no gap: lists at each revision show all changes that the watch
// misses, also if they have several pages.
func TestDefinitionIsChanged(t *testing.T) {
	for _, objects := range []int{2, 7} { // the server's pages have three
		t.Run(fmt.Sprint(objects, " objects"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newCustoms(t), newMemory()
				s.define(true)
				var want []string
				for k := range objects {
					s.put(fmt.Sprint("w", k), "1", nil)
					want = append(want, fmt.Sprintf("r w%d uid-%d -→1", k, k+1))
				}
				l := live(t, s.apiServer, m, takes(widgets(nil)))
				want = append(append([]string{fmt.Sprint("snapshot.started ", objects)}, want...),
					fmt.Sprint("snapshot.completed ", objects))
				l.waitPerName(t, want...)
				s.refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				s.CloseClientConnections()
				synctest.Wait()
				s.put("w0", "2", nil)
				s.put("brief", "1", nil)
				s.delete("brief")
				began := time.Now()
				s.expire(s.put("w1", "2", nil).rv)
				l.waitPerName(t,
					append(want, "u w0 uid-1 1→2", fmt.Sprintf("c brief uid-%d -→1", objects+1),
						fmt.Sprintf("d brief uid-%d 1→-", objects+1), "u w1 uid-2 1→2")...)
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// Lists at each revision have a limit by what the API server lists, also if the scope has none of
// it. Then the names are searched one by one.
func TestDefinitionIsChangedBesideManyExcludedObjects(t *testing.T) {
	const (
		changes  = 20
		excluded = 300
	)
	synctest.Test(t, func(t *testing.T) {
		s := newCustoms(t)
		s.define(true)
		s.put("w", "1", nil)
		for k := range excluded {
			s.putIn("other", fmt.Sprint("x", k), "1", nil)
		}
		l := live(t, s.apiServer, newMemory(), takes(widgets(func(r *selection.Rule) {
			r.AllNamespaces = false
			r.Patterns = []string{"!other"}
			r.Namespaces = func(ns string) bool { return ns != "other" }
		})))
		want := []string{"snapshot.started 1", "r w uid-1 -→1", "snapshot.completed 1"}
		l.wait(t, want...)
		s.refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		s.CloseClientConnections()
		synctest.Wait()
		want = append(want, "gap 0 expired")
		for k := 1; k <= changes; k++ {
			s.put("w", fmt.Sprint(1+k), nil)
			want = append(want, fmt.Sprintf("u w uid-1 %d→%d", k, 1+k))
		}
		s.mu.Lock()
		now := s.rv
		s.mu.Unlock()
		s.expire(now)
		expired := *s.refused.Load()
		var pages atomic.Int64
		count := func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			exact := q.Get("resourceVersionMatch") == "Exact" && q.Get("fieldSelector") == ""
			if at, _, later := strings.Cut(q.Get("continue"), "-"); exact || later && at != fmt.Sprint(now) {
				pages.Add(1)
			}
			expired(w, r)
		}
		s.refused.Store(&count)
		l.wait(t, want...)
		if n := pages.Load(); n < changes || n > changes+100 {
			t.Errorf("%d pages of lists at %d revisions were requested", n, changes)
		}
	})
}

// A resource may be served before the watch on definitions shows that it is established. It is
// captured from its creation all the same, and there is no gap, although the bus has events of an
// earlier resource of that name.
func TestDefinedAgainAndServedBeforeItIsEstablished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCustoms(t)
		s.define(true)
		s.put("a", "1", nil)
		l := live(t, s.apiServer, newMemory(), func(o *informers.Options, r *recorder) {
			takes(widgets(nil))(o, r)
			o.LastEvent = func(_ context.Context, of *object.Resource) (informer.LastEvent, bool, error) {
				return r.lastEvent(of)
			}
		})
		want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		l.wait(t, want...)
		s.delete("a")
		want = append(want, "d a uid-1 1→-")
		l.wait(t, want...)
		s.define(false)
		s.CloseClientConnections()
		l.awaitPhases(t, "widgets.shop.test waiting notserved")
		s.show("ADDED", false)
		pass(3 * time.Second)
		s.put("b", "1", nil)
		s.show("MODIFIED", true)
		// The connection of the first watch broke: it may have missed something until the
		// definition was deleted.
		l.waitPerName(t,
			append(want, "gap 0 expired", "snapshot.started 0", "snapshot.completed 0", "c b uid-2 -→1")...)
	})
}

// A resource that is defined while the manager watches is captured from its creation, even if a
// reload comes before its first list.
func TestReloadBeforeTheFirstListOfACreatedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newCustoms(t), newMemory()
		away := make(chan struct{}) // the bus
		l := live(t, s.apiServer, m, func(o *informers.Options, r *recorder) {
			takes(widgets(nil))(o, r)
			o.LastEvent = func(ctx context.Context, _ *object.Resource) (informer.LastEvent, bool, error) {
				select {
				case <-away:
					return informer.LastEvent{}, false, nil
				case <-ctx.Done():
					return informer.LastEvent{}, false, context.Cause(ctx)
				}
			}
		})
		l.awaitPhases(t, "widgets.shop.test waiting notserved")
		s.define(true)
		s.put("a", "1", nil)
		l.awaitPhases(t, "widgets.shop.test waiting")
		l.reload(t, specOf(widgets(redacted("metadata.labels"))))
		s.put("a", "2", nil)
		close(away)
		l.waitPerName(t, "snapshot.started 0", "snapshot.completed 0", "c a uid-1 -→1", "u a uid-1 1→2")
	})
}

// The content of a resource may change before its first list is answered. The gap that announces it
// begins at the creation, and has its time.
func TestReloadBeforeTheFirstListHasTheTimeOfTheCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCustoms(t)
		l := live(t, s.apiServer, newMemory(), takes(widgets(nil)))
		l.awaitPhases(t, "widgets.shop.test waiting notserved")
		began := time.Now()
		s.refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		s.define(true)
		l.awaitPhases(t, "widgets.shop.test waiting failing server_error")
		l.reload(t, specOf(widgets(redacted("metadata.labels"))))
		s.refuse(0, "")
		eventually(t, "the gap", func() bool { return slices.ContainsFunc(l.ofScope("widgets.shop.test"), isGap) })
		for _, d := range l.ofScope("widgets.shop.test") {
			if isGap(d) && d.Stream.Since.Before(began) {
				t.Errorf("a gap since %v, want the time of the creation, %v", d.Stream.Since, began)
			}
		}
	})
}

// If the objects of a scope can no longer be read, its tombstone is sent without them.
func TestTombstoneOfUnreadableObjects(t *testing.T) {
	for name, away := range map[string]func(s *customs){
		"gone":      func(s *customs) { s.define(false) },
		"forbidden": func(s *customs) { s.refuse(http.StatusForbidden, metav1.StatusReasonForbidden) },
		"unserved":  func(s *customs) { s.refuse(http.StatusNotFound, metav1.StatusReasonNotFound) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newCustoms(t), newMemory()
				s.define(true)
				s.put("a", "1", nil)
				l := live(t, s.apiServer, m, func(o *informers.Options, r *recorder) {
					takes(rule(func(r *selection.Rule) { r.LabelSelector = "none=here" }), widgets(nil))(o, r)
				})
				l.waitPerName(t, "snapshot.started 0", "snapshot.completed 0", "snapshot.started 1", "r a uid-1 -→1",
					"snapshot.completed 1")
				s.refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError)
				l.reload(t,
					specOf(rule(func(r *selection.Rule) { r.LabelSelector = "none=here" }),
						widgets(inNamespaces("none"))))
				away(s)
				s.put("b", "1", nil) // a tombstone waits for a later resourceVersion
				eventually(t, "the scope to be forgotten", func() bool {
					if err := m.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
					_, known := m.saved("widgets.shop.test")
					return !known
				})
				var of []string
				for _, e := range l.streams() {
					if strings.HasPrefix(e, "widgets.shop.test ") {
						of = append(of, strings.TrimPrefix(e, "widgets.shop.test "))
					}
				}
				reason := "selection-changed"
				if name == "gone" {
					reason = "expired"
				}
				want := []string{
					"snapshot.started 1", "snapshot.completed 1", "gap 0 " + reason, "snapshot.started 0",
					"snapshot.completed 0",
				}
				if diff := cmp.Diff(want, of); diff != "" {
					t.Errorf("stream events (-want +got):\n%s", diff)
				}
			})
		})
	}
}
