package discovery_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// follow runs Extensions after Need(true).
func follow(t *testing.T, s *server) (*discovery.Extensions, *recorder, *log) {
	t.Helper()
	var l log
	x := discovery.NewExtensions(s.client(t), l.logger())
	x.Need(true)
	return x, run(t, x.Run), &l
}

// listed returns an item of a list.
func listed(item string) string { return strings.ReplaceAll(item, "$", "1") }

func TestLifeOfADefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.list(definitions, listed(crd("old", 1, metadata)))
		x, r, _ := follow(t, s)
		created := func(want uint64) {
			t.Helper()
			if rv, _ := x.CreatedAt(widgets()); rv != want {
				t.Errorf("created at %d, want %d", rv, want)
			}
			if all := x.Created(nil); (len(all) > 0) != (want != 0) {
				t.Errorf("created: %v", all)
			}
		}
		r.want(t)
		created(0) // it existed before
		if !x.IsEstablished("widgets.shop.test") || x.UID(widgets()) != "old" {
			t.Errorf("established: %t, uid %q", x.IsEstablished("widgets.shop.test"), x.UID(widgets()))
		}
		for _, step := range []struct{ typ, item, want string }{
			{
				"MODIFIED", crd("old", 1, established),
				"DefinitionUpdated{Name:widgets.shop.test SchemaChanged:false StorageChanged:false}",
			},
			{
				"MODIFIED", crd("old", 2, established),
				"DefinitionUpdated{Name:widgets.shop.test SchemaChanged:true StorageChanged:false}",
			},
			{
				"MODIFIED", crd("old", 3, storedAsOld),
				"DefinitionUpdated{Name:widgets.shop.test SchemaChanged:true StorageChanged:true}",
			},
			{
				"MODIFIED", crd("old", 4, `,"deletionTimestamp":"2026-01-01T00:00:00Z"`+storedAsOld),
				"DefinitionUpdated{Name:widgets.shop.test SchemaChanged:false StorageChanged:false}",
			},
			{"DELETED", crd("old", 4, storedAsOld), "DefinitionDeleted{Name:widgets.shop.test ResourceVersion:105}"},
			{
				"ADDED", crd("new", 1, notYet),
				"DefinitionUpdated{Name:widgets.shop.test SchemaChanged:false StorageChanged:false}",
			},
		} {
			s.send(definitions, step.typ, step.item)
			r.want(t, step.want)
		}
		created(0) // not established yet
		if x.IsEstablished("widgets.shop.test") {
			t.Error("established before its status says so")
		}
		s.send(definitions, "MODIFIED", crd("new", 1, established))
		created(106) // when it was added: objects may be older than the status
		beta := *widgets()
		beta.Version = "v1beta1"
		want := []selection.APIResource{{Group: "shop.test", Name: "widgets", Versions: []object.Resource{
			*widgets(), beta,
		}}}
		if diff := cmp.Diff(want, x.Created(nil)); diff != "" {
			t.Errorf("created (-want +got):\n%s", diff)
		}
		x.NoteStarted(want)
		created(0)
	})
}

// The next list shows what happened while there was no watch.
func TestDefinitionsAreListedAgain(t *testing.T) {
	for _, test := range []struct {
		name, item string
		want       []string
	}{
		{"the same", crd("old", 1, metadata), nil},
		{"deleted", "", []string{"DefinitionDeleted{Name:widgets.shop.test ResourceVersion:200}"}},
		{"another one", crd("new", 1, metadata), []string{
			"DefinitionDeleted{Name:widgets.shop.test ResourceVersion:200}",
			"DefinitionUpdated{Name:widgets.shop.test SchemaChanged:false StorageChanged:false}",
		}},
		{"changed", crd("old", 2, metadata), []string{
			"DefinitionUpdated{Name:widgets.shop.test SchemaChanged:true StorageChanged:true}",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.list(definitions, listed(crd("old", 1, metadata)))
				x, r, _ := follow(t, s)
				r.want(t)
				s.list(definitions)
				if test.item != "" {
					s.list(definitions, listed(test.item))
				}
				s.at(199)
				s.expire(definitions)
				r.want(t, test.want...)
				if rv, _ := x.CreatedAt(widgets()); rv != 0 {
					t.Errorf("created at %d, which was not seen", rv)
				}
			})
		})
	}
}

// A resource counts as deleted only if it came from a definition that is known not to exist, and if
// no other API server serves its group.
func TestDeletedAt(t *testing.T) {
	const other, local = `{"metadata":{"name":"v1.shop.test","resourceVersion":"$"},"spec":{"service":{}}}`,
		`{"metadata":{"name":"v1.shop.test","resourceVersion":"$"},"spec":{}}`
	for _, test := range []struct {
		name    string
		prepare func(s *server)
		change  func(s *server)
		uid     string
		want    uint64
	}{
		{"deleted before", nil, nil, "crd", 100},
		{"never defined, as far as is known", nil, nil, "", 0},
		{"deleted while this ran", func(s *server) {
			s.list(definitions, listed(crd("crd", 1, metadata)))
		}, func(s *server) {
			s.send(definitions, "DELETED", crd("crd", 1, established))
		}, "", 101},
		{"defined", func(s *server) { s.list(definitions, listed(crd("crd", 1, metadata))) }, nil, "crd", 0},
		{"defined again", nil, func(s *server) { s.send(definitions, "ADDED", crd("crd", 1, notYet)) }, "crd", 0},
		{"definitions may not be read", func(s *server) {
			s.fail(definitions, http.StatusForbidden, "Forbidden")
		}, nil, "crd", 0},
		{"APIServices may not be read", func(s *server) {
			s.fail(services, http.StatusForbidden, "Forbidden")
		}, nil, "crd", 0},
		{"there are no APIServices", func(s *server) {
			s.fail(services, http.StatusNotFound, "NotFound")
		}, nil, "crd", 100},
		{"another server serves it", func(s *server) { s.list(services, listed(other)) }, nil, "crd", 0},
		{"another server comes to serve it", nil, func(s *server) { s.send(services, "ADDED", other) }, "crd", 0},
		{"another server served it", func(s *server) { s.list(services, listed(other)) }, func(s *server) {
			s.send(services, "DELETED", other)
		}, "crd", 100},
		{"the API server serves its group", func(s *server) { s.list(services, listed(local)) }, nil, "crd", 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.list(definitions)
				s.list(services)
				if test.prepare != nil {
					test.prepare(s)
				}
				x, _, _ := follow(t, s)
				if test.change != nil {
					test.change(s)
				}
				if rv, deleted := x.DeletedAt(widgets(), test.uid); rv != test.want || deleted != (test.want != 0) {
					t.Errorf("deleted at %d (%t), want %d", rv, deleted, test.want)
				}
			})
		})
	}
}

// Definitions that come and go leave nothing behind after a while.
func TestDeletedDefinitionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.list(definitions)
		x, _, _ := follow(t, s)
		comeAndGo := func(name string) {
			item := strings.Replace(crd("crd", 1, established), "widgets.shop.test", name, 1)
			s.send(definitions, "ADDED", item)
			s.send(definitions, "DELETED", item)
		}
		for range 1000 {
			comeAndGo("widgets.shop.test")
		}
		if n := x.Known(); n != 1 {
			t.Errorf("%d definitions are known after one came and went 1,000 times, want 1", n)
		}
		for n := range 1000 {
			comeAndGo(fmt.Sprintf("widgets%d.shop.test", n))
		}
		pass(11 * time.Minute)
		comeAndGo("gadgets.shop.test")
		if n := x.Known(); n != 1 {
			t.Errorf("%d definitions are known 11 min after 1,000 of them were deleted, want 1", n)
		}
	})
}

func TestAPIServices(t *testing.T) {
	service := func(is, available string) string {
		return `{"metadata":{"name":"v1.shop.test","resourceVersion":"$","generation":1},"spec":{` + is +
			`},"status":{"conditions":[{"type":"Available","status":"` + available + `"}]}}`
	}
	const another = `"service":{"name":"shop"}`
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.list(definitions)
		s.list(services)
		x, r, _ := follow(t, s)
		is := func(aggregated, known bool) {
			t.Helper()
			if a, k := x.IsAggregated(widgets()); a != aggregated || k != known {
				t.Errorf("aggregated %t, known %t; want %t, %t", a, k, aggregated, known)
			}
		}
		is(false, false)
		s.send(services, "ADDED", service(another, "False"))
		r.want(t)
		is(true, true)
		s.send(services, "MODIFIED", service(another, "True"))
		r.want(t, "APIServiceAvailable{Name:v1.shop.test}")
		s.send(services, "MODIFIED", service(another, "True"))
		r.want(t)
		s.list(services, listed(service(another, "False")))
		s.expire(services)
		s.list(services, listed(service(another, "True")))
		s.expire(services)
		r.want(t, "APIServiceAvailable{Name:v1.shop.test}")
		is(true, true)
		s.list(services)
		s.expire(services)
		is(false, false)
		r.want(t)
		s.send(services, "MODIFIED", service("", "True"))
		s.send(definitions, "ADDED", crd("crd", 1, established))
		is(false, true)
		s.send(services, "MODIFIED", service(another, "True"))
		if uid := x.UID(widgets()); uid != "" {
			t.Errorf("a resource that another server serves has the definition %q", uid)
		}
	})
}

// If definitions may not be watched, that is logged once, and nothing waits for them.
func TestDefinitionsAreForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.fail(definitions, http.StatusForbidden, "Forbidden")
		x, r, l := follow(t, s)
		began := time.Now()
		x.WaitListed(t.Context())
		if took := time.Since(began); took > 0 {
			t.Errorf("waited %v for lists that are refused", took)
		}
		pass(29 * time.Minute)
		if n := s.count(definitions); n != 6 || l.lines() != 1 {
			t.Errorf("%d lists in 29 min and %d lines, want 6 and 1:\n%s", n, l.lines(), l.text.String())
		}
		s.list(definitions, listed(crd("crd", 1, metadata)))
		pass(time.Minute)
		if !x.IsEstablished("widgets.shop.test") {
			t.Error("it is permitted, and not found")
		}
		r.want(t)
	})
}

// Nothing is listed until a rule takes extensions.
func TestExtensionsAreNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.list(definitions, listed(crd("crd", 1, metadata)))
		x := discovery.NewExtensions(s.client(t), new(log).logger())
		x.Need(false)
		run(t, x.Run)
		x.WaitListed(t.Context())
		if n := s.count(definitions); n > 0 {
			t.Errorf("%d lists", n)
		}
		x.Need(true)
		x.Need(false) // for good
		synctest.Wait()
		if n := s.count(definitions); n != 1 || !x.IsEstablished("widgets.shop.test") {
			t.Errorf("%d lists, established: %t; want one, true", n, x.IsEstablished("widgets.shop.test"))
		}
	})
}

// Wait returns soon after a change, and a few times more, at least a second apart. Otherwise it
// returns after the given time.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.list(definitions)
		x, _, _ := follow(t, s)
		x.WaitListed(t.Context())
		waits := func() time.Duration {
			began := time.Now()
			if !x.Wait(t.Context(), time.Minute) {
				t.Error("the context has not ended")
			}
			return time.Since(began)
		}
		got := []time.Duration{waits()}
		pass(2 * time.Second)
		for range 3 {
			s.send(definitions, "ADDED", crd("crd", 1, established))
		}
		for range 5 {
			got = append(got, waits())
		}
		want := []time.Duration{time.Minute, 100 * time.Millisecond, time.Second, time.Second, time.Second, time.Minute}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if x.Wait(ctx, time.Minute) {
			t.Error("the context has ended")
		}
	})
}

// AwaitDefinitions waits for the watch to show the definition of a resource that was discovered, if
// there is a definition.
func TestAwaitDefinitions(t *testing.T) {
	served := []selection.APIResource{{Group: "shop.test", Name: "widgets", Versions: []object.Resource{*widgets()}}}
	for _, test := range []struct {
		name   string
		exists bool
		added  bool // the watch has shown it before it was established
		comes  time.Duration
		want   time.Duration
	}{
		{"it comes", true, false, time.Second, time.Second},
		{"it comes too late", true, false, time.Minute, 5 * time.Second},
		{"it is established", true, true, time.Second, time.Second},
		{"there is none", false, false, time.Second, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.list(definitions)
				x, _, _ := follow(t, s)
				if test.exists {
					s.list(definitions, listed(crd("crd", 1, metadata)))
				}
				typ := "ADDED"
				if test.added {
					s.send(definitions, typ, crd("crd", 1, notYet))
					synctest.Wait()
					typ = "MODIFIED"
				}
				began := time.Now()
				timer := time.AfterFunc(test.comes, func() { s.send(definitions, typ, crd("crd", 1, established)) })
				defer timer.Stop()
				x.AwaitDefinitions(t.Context(), served)
				if took := time.Since(began); took != test.want {
					t.Errorf("took %v, want %v", took, test.want)
				}
				if rv, _ := x.CreatedAt(widgets()); (rv != 0) != (test.exists && test.want == test.comes) {
					t.Errorf("created at %d", rv)
				}
			})
		})
	}
}

// A watch that is closed again and again costs a list a minute, and continues from its last
// resourceVersion.
func TestClosedWatchIsProbedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.list(definitions)
		follow(t, s)
		for range 60 {
			pass(10 * time.Second)
			s.close(definitions)
		}
		if lists, watches := s.count(definitions), s.count(definitions+"?watch"); lists < 9 || lists > 12 ||
			watches < 50 {
			t.Errorf("%d lists and %d watches in 10 min, want a list a minute", lists, watches)
		}
		pass(time.Second)
		s.send(definitions, "ADDED", crd("crd", 1, established))
		s.close(definitions)
		pass(time.Second)
		if s.from[definitions] != "101" {
			t.Errorf("watched from %s, want 101", s.from[definitions])
		}
	})
}

// A restored etcd is found before the first object of a watch is applied.
func TestRestoredEtcdIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.list(definitions, listed(crd("old", 1, metadata)))
		_, r, _ := follow(t, s)
		s.close(definitions)
		pass(time.Second) // opened again, and probed
		s.close(definitions)
		pass(time.Second) // opened again
		s.at(49)
		s.list(definitions, listed(crd("new", 1, metadata)))
		s.send(definitions, "MODIFIED", crd("old", 2, established))
		pass(time.Second)
		r.want(t, "DefinitionDeleted{Name:widgets.shop.test ResourceVersion:50}",
			"DefinitionUpdated{Name:widgets.shop.test SchemaChanged:false StorageChanged:false}")
	})
}
