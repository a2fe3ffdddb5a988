package store

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/object"
)

// answers are those of an API server that is asked about selectors.
type answers struct {
	was    *object.Object
	exists map[uint64]bool // by the resourceVersion of the question: those that history still has
	asked  []string
}

func (a *answers) Before(_ context.Context, o *object.Object) (was *object.Object, known, ok bool) {
	a.asked = append(a.asked, fmt.Sprintf("before %d", o.ResourceVersion))
	_, known = a.exists[o.ResourceVersion]
	return a.was, known, true
}

func (a *answers) Exists(_ context.Context, ref *object.Ref, rv uint64) (exists, known, ok bool) {
	a.asked = append(a.asked, fmt.Sprintf("exists %s at %d", ref.UID, rv))
	exists, known = a.exists[rv]
	return exists, known, true
}

// TestWatchEvents applies one event to a store that has the object a with the uid 1 at 5, from a
// list at 10.
func TestWatchEvents(t *testing.T) {
	pushed := func(a answers) func(*Options) {
		return func(o *Options) { o.Pushed, o.Selector = true, &a }
	}
	several := func(o *Options) { o.Several = true }
	for name, c := range map[string]struct {
		options func(*Options)
		event   Event
		want    []string
		known   int // events of known versions
		out     int // events of objects that no rule takes
		objects int
	}{
		"created": {event: event(watch.Added, at("b", "2", 11)), want: []string{"c b@11 by me"}, objects: 2},
		"changed": {event: event(watch.Modified, at("a", "1", 11)), want: []string{"u a@11 after 5 by me"}, objects: 1},
		"deleted": {event: event(watch.Deleted, at("a", "1", 11)), want: []string{"d a@11 after 5"}},
		"deleted at the version of the object": {
			event: event(watch.Deleted, at("a", "1", 5)), want: []string{"d a@5 after 5"},
		},
		"the known version": {event: event(watch.Modified, at("a", "1", 5)), known: 1, objects: 1},
		"an older version":  {event: event(watch.Modified, at("a", "1", 4)), known: 1, objects: 1},
		"an older deletion": {event: event(watch.Deleted, at("a", "1", 4)), known: 1, objects: 1},
		"replaced": {
			event: event(watch.Added, at("a", "2", 12)), objects: 1,
			want: []string{"d a@12 after 5 inferred", "c a@12 by me"},
		},
		"the deletion of an unknown object": {
			event: event(watch.Deleted, at("b", "2", 11)), want: []string{"d b@11 with before"}, objects: 1,
		},
		"a repeated deletion": {event: event(watch.Deleted, at("b", "2", 10)), known: 1, objects: 1},
		"the deletion of another object of that name": {
			event: event(watch.Deleted, at("a", "2", 12)), want: []string{"d a@12 with before"}, objects: 1,
		},
		"no rule takes it any more": {
			options: several, event: outside(watch.Modified, at("a", "1", 11)), want: []string{"l a@11 after 5"},
		},
		"no rule has ever taken it": {
			options: several, event: outside(watch.Added, at("b", "2", 11)), out: 1, objects: 1,
		},
		"deleted, and no rule takes it": {
			options: several, event: outside(watch.Deleted, at("a", "1", 11)), want: []string{"d a@11 after 5"},
		},
		"the deletion of an object that no rule takes": {
			options: several, event: outside(watch.Deleted, at("a", "2", 11)), out: 1, objects: 1,
		},
		"replaced by one that no rule takes": {
			options: several, event: outside(watch.Added, at("a", "2", 11)), want: []string{"d a@11 after 5 inferred"},
		},
		"a rule takes it now": {
			options: several, event: event(watch.Modified, at("b", "2", 11)), want: []string{"e b@11"}, objects: 2,
		},
		"created, and a rule takes it": {
			options: several, event: event(watch.Added, at("b", "2", 11)), want: []string{"c b@11 by me"}, objects: 2,
		},
		"a selector takes a new object": {
			options: pushed(answers{exists: map[uint64]bool{11: true}}), event: event(watch.Added, at("b", "2", 11)),
			want: []string{"c b@11 by me"}, objects: 2,
		},
		"a selector takes an earlier object": {
			options: pushed(answers{was: at("b", "2", 7), exists: map[uint64]bool{11: true}}),
			event:   event(watch.Added, at("b", "2", 11)), want: []string{"e b@11 after 7"}, objects: 2,
		},
		"a selector takes an object of unknown history": {
			options: pushed(answers{}), event: event(watch.Added, at("b", "2", 11)),
			want: []string{"e b@11 inferred by me"}, objects: 2,
		},
		"a selector no longer takes it": {
			options: pushed(answers{exists: map[uint64]bool{11: true}}), event: event(watch.Deleted, at("a", "1", 11)),
			want: []string{"l a@11 after 5"},
		},
		"deleted under a selector": {
			options: pushed(answers{exists: map[uint64]bool{11: false}}), event: event(watch.Deleted, at("a", "1", 11)),
			want: []string{"d a@11 after 5"},
		},
		"gone under a selector, and nobody knows why": {
			options: pushed(answers{}), event: event(watch.Deleted, at("a", "1", 11)),
			want: []string{"l a@11 after 5 inferred"},
		},
		"replaced under a selector": { // no question: it did not match before
			options: pushed(answers{was: at("a", "2", 7)}), event: event(watch.Added, at("a", "2", 12)), objects: 1,
			want: []string{"d a@12 after 5 inferred", "c a@12 by me"},
		},
		"changed under a selector": {
			options: pushed(answers{}), event: event(watch.Modified, at("a", "1", 12)), objects: 1,
			want: []string{"u a@12 after 5 by me"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, c.options, func(x *script) {
				x.observe(10, at("a", "1", 5))
				x.watch(c.event)
				x.ends(c.want...)
				x.position(max(10, c.event.Version))
				v := x.s.View()
				known := testutil.ToFloat64(x.s.o.Metrics.Known)
				if v.Objects != c.objects || known != float64(c.known) {
					t.Errorf("%d objects, and %g known versions, want %d and %d", v.Objects, known, c.objects, c.known)
				}
				if out := testutil.ToFloat64(x.s.o.Metrics.Excluded); out != float64(c.out) {
					t.Errorf("%g events are excluded, want %d", out, c.out)
				}
				if n := testutil.ToFloat64(x.s.o.Metrics.Objects); n != float64(c.objects) {
					t.Errorf("the gauge has %g objects, want %d", n, c.objects)
				}
			})
		})
	}
}

// The position passes an event with two deltas only after both.
func TestPositionWaitsForBothDeltas(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		x.watch(event(watch.Added, at("a", "2", 12)), bookmark(15))
		x.position(10)
		x.lane.acknowledge(1)
		x.position(10)
		if v := x.s.View(); v.InFlight != 1 || v.Resting || v.Reached != 15 || v.Acknowledged != 10 {
			t.Errorf("the view is %+v", v)
		}
		x.s.BeginList(Relist)
		if x.s.View().Resting {
			t.Error("a list begins, and a delta is on its way to the bus")
		}
		x.lane.acknowledge(1)
		x.position(15)
		if v := x.s.View(); v.InFlight != 0 || !v.Resting || v.Acknowledged != 15 {
			t.Errorf("the view is %+v", v)
		}
	})
}

// The queue counts what it holds: both versions of an object, and who changed it.
func TestBytesOfQueuedDeltas(t *testing.T) {
	scripted(t, nil, func(x *script) {
		a := at("a", "1", 5)
		x.observe(10, a)
		x.lane.bytes = nil
		x.watch(event(watch.Modified, at("a", "1", 11)), event(watch.Deleted, at("a", "1", 12)))
		x.ends("u a@11 after 5 by me", "d a@12 after 11")
		want := []int{deltaOverhead + 2 + 2*a.HeldBytes(), deltaOverhead + a.HeldBytes()}
		if got := x.lane.bytes; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("the deltas have %d bytes, want %d", got, want)
		}
	})
}

// Apply says that an event is not applied if its context ends first, and calls next for each.
func TestApplyEndsWithItsContext(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		ctx, cancel := context.WithCancel(x.ctx)
		applied := make(chan bool, 1)
		calls := 0
		x.lane.fill(true, true)
		go func() {
			events := []Event{bookmark(11), event(watch.Modified, at("a", "1", 12))}
			applied <- x.s.Apply(ctx, events, func() { calls++ })
		}()
		synctest.Wait()
		if v := x.s.View(); v.Resting || v.Reached != 12 {
			t.Errorf("the lane has no room, and the view is %+v", v)
		}
		cancel()
		if <-applied || calls != 2 {
			t.Errorf("applied, or %d calls, want 2", calls)
		}
		x.lane.fill(false, false)
		if x.s.Apply(ctx, []Event{bookmark(13)}, func() {}) {
			t.Error("applied after the end of the context")
		}
		x.position(11) // a restart reads the change again
	})
}

// A store that is stopped takes no more events, but its lists continue.
func TestStoppedStoreTakesNoEvents(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		x.s.Stop()
		ctx, cancel := context.WithCancel(x.ctx)
		applied := make(chan bool, 1)
		go func() { applied <- x.s.Apply(ctx, []Event{event(watch.Modified, at("a", "1", 12))}, func() {}) }()
		x.s.SetFilter(nil, "", nil) // wakes the cursor
		x.ends()
		if v := x.s.View(); !v.Resting || v.Reached != 10 {
			t.Errorf("the view is %+v", v)
		}
		cancel()
		if <-applied {
			t.Error("applied")
		}
	})
}

// withhold is a filter of versions, by resourceVersion.
type withhold map[uint64]bool

func (w withhold) Withholds(d *object.Delta) string {
	if w[d.ResourceVersion] {
		return "test"
	}
	return ""
}

// The next version sent says how many were withheld before it. Those of a deleted object do not
// count for the next one of its name.
func TestWithheldVersionsAreCounted(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		x.s.SetFilter(withhold{11: true, 12: true, 14: true, 16: true, 17: true}, "", nil)
		x.watch(event(watch.Modified, at("a", "1", 11)), event(watch.Modified, at("a", "1", 12)))
		x.ends()
		x.position(12) // nobody acknowledges what was not sent
		x.watch(event(watch.Modified, at("a", "1", 13)), event(watch.Modified, at("a", "1", 14)))
		x.watch(event(watch.Modified, at("a", "1", 15)), event(watch.Modified, at("a", "1", 16)))
		x.watch(event(watch.Deleted, at("a", "1", 17)), event(watch.Added, at("a", "2", 18)))
		x.ends("u a@13 after 12 skipped 2 by me", "u a@15 after 14 skipped 1 by me", "c a@18 by me")
		if n := testutil.ToFloat64(x.s.o.Metrics.Withheld.WithLabelValues("test")); n != 5 {
			t.Errorf("%g versions were withheld, want 5", n)
		}
		x.s.mu.Lock()
		x.s.skipLocked("configmaps/shop/a", math.MaxUint32)
		x.s.mu.Unlock()
		x.s.SetFilter(withhold{19: true}, "", nil)
		x.watch(event(watch.Modified, at("a", "2", 19)), event(watch.Modified, at("a", "2", 20)))
		x.ends("u a@20 after 19 skipped 4294967295 by me") // it does not start over
	})
}

// Versions that were withheld count for the deletion of their object, and not for another one that
// replaces it.
func TestWithheldVersionsOfAReplacedObject(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		x.s.SetFilter(withhold{11: true, 12: true}, "", nil)
		x.watch(event(watch.Modified, at("a", "1", 11)), event(watch.Modified, at("a", "1", 12)))
		x.watch(event(watch.Added, at("a", "2", 14)))
		x.ends("d a@14 after 12 inferred skipped 2", "c a@14 by me")
	})
}
