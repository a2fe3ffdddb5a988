package discovery_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
)

// followed returns what follows the resources that the package lists and watches, by path.
func followed(t *testing.T, s *server) map[string]func(context.Context, discovery.Handler) {
	t.Helper()
	x := discovery.NewExtensions(s.client(t), new(log).logger())
	x.Need(true)
	return map[string]func(context.Context, discovery.Handler){
		definitions: x.Run, services: x.Run, namespaces: discovery.NewNamespaces(s.client(t), new(log).logger()).Run,
	}
}

// A watch that sends bookmarks, and then nothing, is opened again after 150 s. One that never sends
// any may be silent until it times out.
func TestSilentWatch(t *testing.T) {
	const bookmark = `{"kind":"Bookmark","metadata":{"resourceVersion":"$"}}`
	for _, path := range []string{definitions, services, namespaces} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.list(path)
				run(t, followed(t, s)[path])
				want := func(after time.Duration, watches int) {
					t.Helper()
					pass(after)
					if n := s.count(path + "?watch"); n != watches {
						t.Errorf("%d watches were opened, want %d", n, watches)
					}
				}
				want(160*time.Second, 1)
				s.send(path, "BOOKMARK", bookmark)
				want(149*time.Second, 0)
				want(2*time.Second, 1)
				want(148*time.Second, 0)
				want(3*time.Second, 1) // without a bookmark on this one
			})
		})
	}
}

// A watch that is neither accepted nor refused is opened again after 150 s.
func TestUnansweredWatch(t *testing.T) {
	for _, path := range []string{definitions, services, namespaces} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.list(path)
				s.refused[path] = 0
				run(t, followed(t, s)[path])
				pass(149 * time.Second)
				if n := s.count(path + "?watch"); n != 1 {
					t.Errorf("%d watches were opened, want 1", n)
				}
				pass(2 * time.Second)
				if n := s.count(path + "?watch"); n != 1 {
					t.Errorf("%d watches were opened after 150 s, want 1", n)
				}
			})
		})
	}
}

// A watch that an API server does not end is opened again within 10.5 min, also without bookmarks.
func TestWatchThatIsNeverEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.list(namespaces)
		run(t, followed(t, s)[namespaces])
		pass(5*time.Minute + 29*time.Second)
		if n := s.count(namespaces + "?watch"); n != 1 {
			t.Errorf("%d watches in 5.5 min, want 1", n)
		}
		pass(5*time.Minute + 2*time.Second)
		if n := s.count(namespaces + "?watch"); n != 1 {
			t.Errorf("%d watches in the 5 min after that, want 1", n)
		}
	})
}

// If each watch expires at once, the lists in between come with a growing delay.
func TestWatchThatAlwaysExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.list(namespaces)
		s.refused[namespaces] = http.StatusGone
		run(t, followed(t, s)[namespaces])
		pass(5 * time.Minute)
		if n := s.count(namespaces); n > 20 {
			t.Errorf("%d lists in 5 min, want at most 20", n)
		}
	})
}

// A list whose pages always expire is made without pages.
func TestListWhosePagesAlwaysExpire(t *testing.T) {
	for _, path := range []string{definitions, services, namespaces} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.list(path)
				s.expires = path
				run(t, followed(t, s)[path])
				pass(time.Minute)
				if n := s.count(path + "?watch"); n == 0 {
					t.Error("no watch follows the list")
				}
			})
		})
	}
}

// A watch that ends with an error at the same version again and again is followed by a list.
func TestWatchThatAlwaysFailsAtOneVersionIsListed(t *testing.T) {
	for _, path := range []string{definitions, services, namespaces} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.list(path)
				s.refused[path] = http.StatusInternalServerError
				run(t, followed(t, s)[path])
				pass(3 * time.Minute)
				if n := s.count(path); n < 2 {
					t.Errorf("%d lists, want another one", n)
				}
			})
		})
	}
}
