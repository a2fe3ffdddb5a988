package informers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// extension is an API server in which widgets.shop.test come from an extension API server that has
// no etcd. The resourceVersion of a list is the highest of its objects, unless listed changes it.
// It supports no questions about the past.
type extension struct {
	*customs
	listed func(highest uint64) uint64
}

func newExtension(t *testing.T) *extension {
	s := &extension{customs: newCustoms(t), listed: func(highest uint64) uint64 { return highest }}
	s.defined = true
	s.builtIn = true
	s.ownVersions = true
	s.fault = s.answer
	return s
}

func (s *extension) answer(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	switch r.URL.Path {
	case "/apis/apiregistration.k8s.io/v1/apiservices":
		if q.Get("watch") != "" {
			say(w)
			<-r.Context().Done()
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w,
			`{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"v1.shop.test","uid":"s","resourceVersion":"1"},`+
				`"spec":{"group":"shop.test","version":"v1","service":{"name":"shop","namespace":"shop"}}}]}`)
		return true
	case "/apis/shop.test/v1/widgets", "/apis/shop.test/v1/namespaces/shop/widgets":
		if q.Get("watch") == "" {
			s.listWidgets(w, r)
			return true
		}
	}
	return s.customs.answer(w, r)
}

// listWidgets answers with the current objects, whatever version is asked for.
func (s *extension) listWidgets(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	q.Del("resourceVersion")
	q.Del("resourceVersionMatch")
	r.URL.Path, r.URL.RawQuery = "/api/v1/configmaps", q.Encode()
	rec := httptest.NewRecorder()
	s.list(rec, r)
	var list struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   map[string]any    `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	_ = json.Unmarshal(rec.Body.Bytes(), &list)
	highest := uint64(1)
	s.do(func() {
		for _, v := range s.now {
			highest = max(highest, v.rv)
		}
	})
	list.Metadata["resourceVersion"] = strconv.FormatUint(s.listed(highest), 10)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// observe runs a manager that observes the widgets.
func (s *extension) observe(t *testing.T, m *memory) *life {
	t.Helper()
	return live(t, s.apiServer, m, func(o *informers.Options, _ *recorder) { o.Rules = specOf(widgets(nil)).Rules })
}

// refuseWatches refuses watches of the widgets.
func (s *extension) refuseWatches(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path == "/apis/shop.test/v1/widgets" && r.URL.Query().Get("watch") != "" {
		fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		return true
	}
	return s.answer(w, r)
}

// changes returns the short forms of the deltas so far.
func (r *recorder) changes() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deltas {
		out = append(out, short(d))
	}
	return out
}

// waitChanges waits until changes returns want.
func (r *recorder) waitChanges(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, strings.Join(want, ", "), func() bool { return len(r.changes()) >= len(want) })
	if diff := cmp.Diff(want, r.changes()); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
}

// A list of an extension API server may have a lower resourceVersion after its newest object was
// deleted. That is no restored etcd, however often a watch ends, and nothing of the dead object is
// sent again.
func TestLowerListOfAnExtensionServerIsNoRestore(t *testing.T) {
	for name, deleted := range map[string][]string{"the newest object": {"b"}, "all objects": {
		"b", "a",
	}, "all, the newest last": {"a", "b"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newExtension(t), newMemory()
				s.put("a", "1", nil)
				s.put("b", "1", nil)
				l := s.observe(t, m)
				want := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
				l.waitChanges(t, want...)
				for _, name := range deleted {
					want = append(want, fmt.Sprintf("d %s %s 1→-", name, s.uidOf(name)))
					s.delete(name)
				}
				l.waitChanges(t, want...)
				for range 5 {
					s.CloseClientConnections()
					pass(2 * time.Minute)
					l.waitChanges(t, want...)
				}
				s.put("c", "1", nil)
				l.waitChanges(t, append(want, "c c uid-3 -→1")...)
				s.delete("c")
				l.waitChanges(t, append(want, "c c uid-3 -→1", "d c uid-3 1→-")...)
				_ = m.Flush(t.Context())
				l.end()

				s.put("d", "1", nil)
				second := s.observe(t, m)
				eventually(t, "the next object", func() bool {
					return second.has("c d uid-4 -→1") || second.has("r d uid-4 -→1")
				})
				pass(3 * time.Minute)
				for _, text := range second.changes() {
					if strings.Contains(text, "rewound") || strings.HasPrefix(text, "c c ") {
						t.Errorf("the next run sends %s", text)
					}
				}
			})
		})
	}
}

// A change that a lower list shows is announced, and sent, but not as a restored etcd.
func TestLowerListOfAnExtensionServerIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newExtension(t)
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		l := s.observe(t, newMemory())
		want := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
		l.waitChanges(t, want...)
		s.do(func() { s.fault = s.refuseWatches })
		s.CloseClientConnections()
		s.delete("b")
		s.do(func() { // the server no longer has the deletion
			s.history = s.history[:len(s.history)-1]
			s.history = slices.DeleteFunc(s.history, func(v *version) bool { return v.name == "b" })
			s.fault = s.answer
		})
		pass(3 * time.Minute)
		l.waitChanges(t, append(want, "gap 0 expired", "~d b uid-2 1→-")...)
	})
}

// The etcd of an aggregated API server is restored: the last version that was seen shows it.
func TestAggregatedEtcdIsRestored(t *testing.T) {
	for name, meanwhile := range map[string]func(s *apiServer){
		"behind": func(*apiServer) {},
		"ahead":  func(s *apiServer) { putMany(s, "other", 5) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newExtension(t)
				copied := s.put("a", "1", nil).rv
				l := s.observe(t, newMemory())
				l.awaitCaptured(t)
				s.put("a", "2", nil)
				eventually(t, "the change", func() bool { return l.has("u a uid-1 1→2") })
				s.do(func() { s.fault = s.refuseWatches })
				s.CloseClientConnections()
				s.restore(copied)
				meanwhile(s.apiServer)
				s.do(func() { s.fault = s.answer })
				pass(3 * time.Minute)
				if !l.has("gap 0 rewound") {
					t.Errorf("the restore is not found: %s", strings.Join(l.changes(), ", "))
				}
			})
		})
	}
}

// A lower list of a resource of an etcd proves a restore, also if nothing else can: the scope is
// empty, or its newest object was deleted.
func TestLowerListOfAnEtcdIsARestore(t *testing.T) {
	for name, deleted := range map[string]string{"an empty scope": "only", "the newest object was deleted": "b"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				s.do(func() { s.rv += 5 })
				copied := s.now1()
				if deleted == "b" {
					s.put("a", "1", nil)
				}
				s.put(deleted, "1", nil)
				l := live(t, s, newMemory(), nil)
				l.awaitCaptured(t)
				s.delete(deleted)
				eventually(t, "the deletion", func() bool {
					all := l.changes()
					return len(all) > 0 && strings.HasPrefix(all[len(all)-1], "d ")
				})
				s.restore(copied)
				s.CloseClientConnections()
				pass(3 * time.Minute)
				if !l.has("gap 0 rewound") {
					t.Errorf("the restore is not found: %s", strings.Join(l.changes(), ", "))
				}
			})
		})
	}
}

// The resourceVersion of a list that is lower than that of an object in it is no position. Status
// says so.
func TestListBelowItsOwnObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newExtension(t)
		s.listed = func(highest uint64) uint64 { return highest - 1 }
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		l := s.observe(t, newMemory())
		want := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
		l.waitChanges(t, want...)
		for range 3 {
			s.CloseClientConnections()
			pass(2 * time.Minute)
		}
		s.put("b", "2", nil)
		l.waitChanges(t, append(want, "u b uid-2 1→2")...)
		st := l.set.Status()[0]
		if st.Health != informer.HealthOK ||
			!strings.Contains(st.Note, "returned a list at resourceVersion 101 with an object at 102") {
			t.Errorf("%+v", st)
		}
	})
}
