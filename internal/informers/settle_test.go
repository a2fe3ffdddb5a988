package informers_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
)

// settledWithin is the longest time from a moment until progress says that the bus has everything
// of a quiet scope without bookmarks up to then. It consists of the interval of watches, of the
// time from the last list to the end of a watch, and of a minute to the next progress.
const settledWithin = 10*time.Minute + 90*time.Second + time.Minute

// promise is what the last progress says of ConfigMaps.
type promise struct {
	rv          uint64
	to          time.Time
	interrupted []object.Interruption
	at          time.Time // when it was sent
}

// lastClaim returns the last claim, false if there is none.
func (r *recorder) lastClaim() (c promise, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) == 0 {
		return c, false
	}
	d := r.told[len(r.told)-1]
	for _, s := range d.Report.Scopes {
		if s.Resource.Name != "configmaps" || s.ResourceVersion == 0 {
			continue
		}
		c = promise{rv: s.ResourceVersion, to: s.To, interrupted: s.Interruptions, at: time.Unix(0, d.Observed)}
		if c.to.IsZero() {
			c.to = d.Report.To
		}
		return c, true
	}
	return c, false
}

func (l *life) mustClaim(t *testing.T) promise {
	t.Helper()
	c, ok := l.lastClaim()
	if !ok {
		t.Fatal("no progress claims anything")
	}
	return c
}

// overs returns the interruptions that are over.
func (c *promise) overs() []object.Interruption {
	return slices.DeleteFunc(slices.Clone(c.interrupted), func(i object.Interruption) bool { return i.Until.IsZero() })
}

// versionNow returns the last version of etcd.
func (s *apiServer) versionNow() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rv
}

// A scope without bookmarks is quiet, and others of its etcd are not. Its progress follows: by
// version, and by time. Nothing is said to be interrupted, and the lists are few.
func TestQuietScopeIsSettled(t *testing.T) {
	t.Run("others change", func(t *testing.T) { testQuietScope(t, true) })
	t.Run("nothing changes", func(t *testing.T) { testQuietScope(t, false) })
}

func testQuietScope(t *testing.T, busy bool) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		p := &bufferingProxy{}
		p.behind(s)
		for n := range 5 {
			s.put(fmt.Sprint("cm-", n), "1", nil)
		}
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].Names = []string{"shop"} })
		type moment struct {
			at time.Time
			rv uint64
		}
		var moments []moment
		for n := range 180 {
			moments = append(moments, moment{time.Now(), s.versionNow()})
			pass(time.Minute)
			if busy {
				s.putIn("other", "a", strconv.Itoa(n), nil)
			}
			if n < 14 {
				continue
			}
			c := l.mustClaim(t)
			old := moments[len(moments)-1-int(settledWithin/time.Minute)]
			if c.to.Before(old.at) || c.rv < old.rv {
				t.Errorf("after %d min: up to %d and %v, want %d and %v", n+1, c.rv, c.to, old.rv, old.at)
			}
			for _, now := range moments {
				if now.at.After(c.to.Add(time.Second)) && c.rv > now.rv+1 {
					t.Errorf("after %d min: up to %d at %v, which is later than %v", n+1, c.rv, c.to, now)
					break
				}
			}
			if overs := c.overs(); len(overs) > 0 {
				t.Errorf("after %d min: interrupted: %v", n+1, overs)
			}
		}
		if n := s.asked(true); n > 3*6+4 {
			t.Errorf("%d lists of metadata in three hours", n)
		}
		if n := s.asked(false); n != 2 {
			t.Errorf("%d pages of lists of whole objects", n)
		}
	})
}

// A scope with bookmarks is never settled, and never listed.
func TestScopeWithBookmarksIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		p := &bufferingProxy{}
		p.behind(s)
		s.put("a", "1", nil)
		s.marks(t)
		l := live(t, s, m, nil)
		pass(3 * time.Hour)
		if n := s.asked(true); n != 0 {
			t.Errorf("%d lists of metadata", n)
		}
		if c := l.mustClaim(t); c.at.Sub(c.to) > 2*time.Minute {
			t.Errorf("at %v, everything to %v", c.at, c.to)
		}
	})
}

// The position of a quiet scope follows. So its watches continue although etcd is compacted, and so
// does the next run: nothing is listed again, and there is no gap.
func TestSettledPositionIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		p := &bufferingProxy{}
		p.behind(s)
		s.put("a", "1", nil)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].Names = []string{"shop"} })
		for n := range 60 {
			pass(time.Minute)
			s.putIn("other", "a", strconv.Itoa(n), nil)
			if n >= 11 && n%11 == 0 {
				rv := l.mustClaim(t).rv
				s.do(func() { s.compacted = rv })
			}
		}
		if n := s.asked(false); n != 1 {
			t.Errorf("%d lists", n)
		}
		rv := l.mustClaim(t).rv
		_ = m.Flush(t.Context())
		if c, _ := m.saved("configmaps/shop"); c.ResourceVersion < rv {
			t.Errorf("the checkpoint is at %d, the progress at %d", c.ResourceVersion, rv)
		}
		l.end()
		s.do(func() { s.compacted = rv })
		s.put("b", "1", nil)
		next := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].Names = []string{"shop"} })
		next.wait(t, "c b uid-3 -→1")
	})
}

// Progress does not claim a change that the watch may miss, and the position does not pass it.
func TestUnprovedScopeIsNotSettled(t *testing.T) {
	update := func(s *apiServer) { s.put("a", "2", nil) }
	deletion := func(s *apiServer) { s.delete("a") }
	passing := func(s *apiServer) {
		s.put("b", "1", nil)
		s.delete("b")
	}
	back := func(s *apiServer) {
		s.put("a", "2", nil)
		s.put("a", "1", nil)
	}
	for name, c := range map[string]struct {
		change func(s *apiServer) // while the proxy holds
		proxy  *bufferingProxy
		cuts   bool // all connections, now and then
	}{
		"a proxy holds an object that came and went": {change: passing, proxy: &bufferingProxy{}},
		"a proxy holds a change and its opposite":    {change: back, proxy: &bufferingProxy{}},
		"a proxy holds a deletion":                   {change: deletion, proxy: &bufferingProxy{}},
		"what a proxy holds is lost with a cut":      {change: passing, proxy: &bufferingProxy{dead: true}, cuts: true},
		// It ends the response as an API server does, but not at the timeout.
		"a proxy ends its responses early": {change: passing, proxy: &bufferingProxy{
			drops: true,
			ends:  4 * time.Minute,
		}},
		// The watch ends at its timeout, and has not shown what lists show.
		"an API server is behind with an update":  {change: update, proxy: &bufferingProxy{drops: true}},
		"an API server is behind with a deletion": {change: deletion, proxy: &bufferingProxy{drops: true}},
		"only the agent's own connections are cut": {change: func(*apiServer) {}, proxy: &bufferingProxy{
			dead: true,
		}, cuts: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				c.proxy.behind(s)
				s.put("a", "1", nil)
				l := live(t, s, m, nil)
				if c.cuts {
					go func() {
						for wait(t.Context(), 4*time.Minute) {
							s.CloseClientConnections()
						}
					}()
				}
				pass(20 * time.Second)
				c.proxy.hold(true)
				first := s.versionNow()
				c.change(s)
				s.putIn("", "node", "1", nil) // in the same etcd
				for range 15 * 60 {
					pass(time.Second)
					wantTruth(t, s, l)
					if t.Failed() {
						return
					}
				}
				if rv := l.mustClaim(t).rv; c.cuts && rv != first {
					t.Errorf("the progress is at %d, want %d", rv, first)
				}
				c.proxy.hold(false)
				pass(2 * settledWithin)
				wantTruth(t, s, l)
				if l.mustClaim(t).rv < s.versionNow() && !c.cuts && c.proxy.ends == 0 {
					t.Errorf("the progress is at %d in the end", l.mustClaim(t).rv)
				}
			})
		})
	}
}

// wantTruth requires that the bus has everything that the last progress claims.
func wantTruth(t interface{ Errorf(string, ...any) }, s *apiServer, l *life) {
	c, ok := l.lastClaim()
	if !ok {
		return
	}
	has := map[string]bool{}
	l.mu.Lock()
	for _, d := range l.deltas {
		if d.Stream == nil {
			has[fmt.Sprint(d.Ref.UID, "@", d.ResourceVersion)] = true
		}
	}
	l.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.history {
		if v.bookmark || v.namespace == "" {
			continue
		}
		if v.rv <= c.rv && !has[fmt.Sprint(v.uid, "@", v.rv)] {
			t.Errorf("the progress at %v claims everything up to %d and %v, and the bus lacks %s at %d", c.at, c.rv,
				c.to, v.name, v.rv)
		}
	}
}

// TestModelOfSettling draws changes, a proxy that holds back frames, cuts, compactions and
// restarts. The progress of a scope without bookmarks never claims a version that the bus lacks,
// and claims what it can once all is quiet.
func TestModelOfSettling(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 25).Draw(rt, "steps")
		seed := rapid.Uint64().Draw(rt, "seed")
		synctest.Test(t, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(1, seed))
			s := newAPIServer(t)
			m := newMemory()
			p := &bufferingProxy{}
			p.behind(s)
			s.put("a", "1", nil)
			l := liveSaved(t, s, m, nil)
			names := []string{"a", "b", "c"}
			for _, what := range steps {
				name := names[draw.IntN(len(names))]
				exists := false
				s.do(func() {
					v := s.now["shop/"+name]
					exists = v != nil && !v.deleted
				})
				switch {
				case what <= 1:
					s.put(name, strconv.Itoa(draw.IntN(3)), nil)
				case what == 2 && exists:
					s.delete(name)
				case what == 3 && !exists: // it comes and goes
					s.put(name, "1", nil)
					s.delete(name)
				case what == 4:
					p.hold(true)
				case what == 5:
					p.hold(false)
				case what == 6:
					s.CloseClientConnections()
				case what == 7:
					s.putIn("", "node", "1", nil)
				}
				for end := time.Now().Add(time.Duration(1+draw.IntN(400)) * time.Second); time.Now().Before(end); {
					pass(10 * time.Second)
					wantTruth(t, s, l)
				}
				if t.Failed() {
					return
				}
			}
			p.hold(false)
			s.CloseClientConnections()
			pass(time.Minute)
			s.putIn("", "node", "2", nil)
			last, at := s.versionNow(), time.Now()
			pass(2 * settledWithin)
			wantTruth(t, s, l)
			if c := l.mustClaim(t); c.rv < last || c.to.Before(at) {
				t.Errorf("all is quiet since %v, at %d: the progress claims %v, up to %d", at, last, c.to, c.rv)
			}
		})
		if t.Failed() {
			rt.Fatalf("steps %v, seed %d", steps, seed)
		}
	})
}

// slowLists makes each list of metadata take d.
func (s *apiServer) slowLists(d time.Duration) {
	s.do(func() {
		first := s.fault
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if isMetadata(r) {
				_ = wait(r.Context(), d)
			}
			return first(w, r)
		}
	})
}

// A page of the list takes long, or the limiter delays it: the next list begins earlier. However
// long it takes, and whenever the scope became quiet, progress is late by a known time.
func TestSlowListSettles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		took := time.Duration(rapid.IntRange(0, 140).Draw(rt, "seconds of a list")) * time.Second
		quiet := time.Duration(rapid.IntRange(0, 20*60).Draw(rt, "seconds until the scope is quiet")) * time.Second
		synctest.Test(t, func(t *testing.T) {
			s := newAPIServer(t)
			m := newMemory()
			p := &bufferingProxy{}
			p.behind(s)
			s.put("a", "1", nil)
			s.slowLists(took)
			l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].Names = []string{"shop"} })
			pass(quiet)
			s.put("a", "2", nil)
			late := settledWithin + 30*time.Second + 3*took
			for began := time.Now(); time.Since(began) < time.Hour; {
				pass(time.Minute)
				s.putIn("other", "a", time.Now().String(), nil)
				c := l.mustClaim(t)
				if age := time.Since(c.to); age > late {
					t.Errorf("lists of %v, quiet after %v: the progress has everything to %v ago, want %v", took, quiet,
						age, late)
					return
				}
			}
		})
		if t.Failed() {
			rt.Fatal("too late")
		}
	})
}
