package etcds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	began   = time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	errList = errors.New("the list fails")
)

// world has etcds, and the resources in them. Each list, and each minute, writes to them.
type world struct {
	t       testing.TB
	now     time.Time
	etcds   *Etcds
	of      map[string]int // the etcd of each resource
	history map[string]uint32
	known   map[string]int // what an earlier run knew
	alone   map[string]bool
	custom  map[string]bool
	fails   map[string]bool
	version []uint64
	step    func(etcd int) uint64 // what is written to an etcd before each list
	minute  func(etcd int) uint64 // and in each minute
	lists   int
}

func newWorld(t testing.TB, versions ...uint64) *world {
	return &world{
		t:       t,
		now:     began,
		etcds:   New(0),
		of:      map[string]int{},
		history: map[string]uint32{},
		known:   map[string]int{},
		alone:   map[string]bool{},
		custom:  map[string]bool{},
		fails:   map[string]bool{},
		version: versions,
		step:    func(int) uint64 { return 1 },
		minute:  func(int) uint64 { return 10 },
	}
}

// put puts resources into an etcd.
func (w *world) put(etcd int, names ...string) {
	for _, name := range names {
		w.of[name] = etcd
	}
}

func (w *world) list(name string) (uint64, error) {
	w.lists++
	for k := range w.version {
		w.version[k] += w.step(k)
	}
	if w.fails[name] {
		return 0, errList
	}
	return w.version[w.of[name]], nil
}

// round makes a round, and returns whether what was known is valid.
func (w *world) round() (isValid bool) {
	var all []Resource
	for name := range w.of {
		all = append(all, Resource{
			Name:       name,
			Aggregated: w.alone[name],
			Custom:     w.custom[name],
			History:    w.history[name],
			Etcd:       w.known[name],
		})
	}
	isValid = w.etcds.Observe(all)
	w.etcds.Round(w.now, w.list)
	w.now = w.now.Add(Every)
	for k := range w.version {
		w.version[k] += w.minute(k)
	}
	return isValid
}

func (w *world) want(want map[string]int) {
	w.t.Helper()
	for name, n := range want {
		if got := w.etcds.Of(name); got != n {
			w.t.Errorf("after %v: %s is in etcd %d, want %d", w.now.Sub(began), name, got, n)
		}
	}
}

// A resource that moves with the representative in three sandwiches, a minute apart, is in its
// etcd. One that is outside of one sandwich is not.
func TestThreeSandwiches(t *testing.T) {
	w := newWorld(t, 1000, 50)
	w.put(0, "namespaces", "pods")
	w.put(1, "events", "leases")
	w.alone["widgets.shop.test"] = true
	w.put(0, "widgets.shop.test")
	for range 2 {
		w.round()
		w.want(map[string]int{"namespaces": 2, "pods": 0, "events": 3, "leases": 0, "widgets.shop.test": 1})
	}
	w.round()
	w.want(map[string]int{"namespaces": 2, "pods": 2, "events": 3, "leases": 3, "widgets.shop.test": 1})
}

// Nothing is written, so nothing shows that resources share an etcd. Then hardly anything is asked.
func TestIdleEtcd(t *testing.T) {
	w := newWorld(t, 1000)
	w.put(0, "namespaces", "pods", "secrets")
	w.step, w.minute = func(int) uint64 { return 0 }, func(int) uint64 { return 0 }
	w.round()
	w.lists = 0
	for range 10 {
		w.round()
	}
	w.want(map[string]int{"namespaces": 1, "pods": 0, "secrets": 0})
	if w.lists > 10 {
		t.Errorf("%d lists in ten minutes", w.lists)
	}
	w.minute = func(int) uint64 { return 1 }
	for range enough {
		w.round()
	}
	w.want(map[string]int{"namespaces": 1, "pods": 1, "secrets": 1})
}

// An etcd that passes another one is inside for a while.
func TestEtcdsThatPassEachOther(t *testing.T) {
	w := newWorld(t, 1000, 900)
	w.put(0, "namespaces")
	w.put(1, "events")
	w.step = func(int) uint64 { return 20 }
	w.minute = func(k int) uint64 { return 10 + 40*uint64(k) }
	for range 10 {
		w.round()
		if w.etcds.Of("events") == w.etcds.Of("namespaces") {
			t.Fatalf("two etcds are one after %v", w.now.Sub(began))
		}
	}
}

// Two etcds assign versions in step for some minutes, so they seem to be one. That is found out.
func TestEtcdsInStep(t *testing.T) {
	w := newWorld(t, 1000, 1000)
	w.put(0, "namespaces")
	w.put(1, "events")
	for range enough {
		w.round()
	}
	w.want(map[string]int{"namespaces": 1, "events": 1})
	w.version[1] += 50
	for range 4 {
		w.round()
	}
	w.want(map[string]int{"namespaces": 1, "events": 2})
}

// The knowledge of an earlier run holds at once, and is compared again.
func TestKnownInAnEarlierRun(t *testing.T) {
	w := newWorld(t, 1000, 50)
	w.etcds = New(7)
	w.put(0, "namespaces", "pods")
	w.put(1, "events")
	w.known = map[string]int{"namespaces": 2, "pods": 2, "events": 2}
	w.etcds.Observe([]Resource{{Name: "namespaces", Etcd: 2}, {Name: "pods", Etcd: 2}, {Name: "events", Etcd: 2}})
	w.want(map[string]int{"namespaces": 2, "pods": 2, "events": 2})
	w.round()
	w.want(map[string]int{"namespaces": 2, "pods": 2, "events": 8})
}

// An API server is started with another etcd for a resource.
func TestMovedToAnotherEtcd(t *testing.T) {
	w := newWorld(t, 1000, 50)
	w.put(0, "namespaces", "pods")
	for range enough {
		w.round()
	}
	w.want(map[string]int{"namespaces": 1, "pods": 1})
	w.put(1, "pods")
	for range AgainEvery/Every + 1 {
		w.round()
	}
	w.want(map[string]int{"namespaces": 1, "pods": 2})
}

// A restore makes void what is known, also what an earlier run knew.
func TestRestoredEtcd(t *testing.T) {
	w := newWorld(t, 1000)
	w.put(0, "namespaces", "pods")
	for range enough {
		w.round()
	}
	w.history["pods"] = 1
	if w.round() {
		t.Error("what is known is valid after a restore")
	}
	w.want(map[string]int{"namespaces": 2, "pods": 0})
	w.put(0, "secrets")
	w.known["secrets"] = 1
	for range enough - 1 {
		w.round()
	}
	w.want(map[string]int{"namespaces": 2, "pods": 2, "secrets": 0})
}

// A representative that cannot be listed is replaced.
func TestRepresentativeFails(t *testing.T) {
	w := newWorld(t, 1000)
	w.put(0, "namespaces", "pods", "secrets")
	w.fails["namespaces"] = true
	for range maxFails + enough {
		w.round()
	}
	w.want(map[string]int{"namespaces": 0, "pods": 2, "secrets": 2})
	w.fails["pods"] = true
	w.put(0, "services")
	for range enough + 1 {
		w.round()
	}
	w.want(map[string]int{"services": 2})
}

// The API server is away for a round: hardly anything is asked in vain, and all is found out soon.
func TestAPIServerIsAway(t *testing.T) {
	w := newWorld(t, 1000)
	for k := range 64 {
		w.put(0, fmt.Sprintf("resource%d", k))
	}
	w.round()
	for name := range w.of {
		w.fails[name] = true
	}
	w.lists = 0
	w.round()
	if w.lists > maxFails {
		t.Errorf("%d lists, and all fail", w.lists)
	}
	clear(w.fails)
	for range enough + 2 {
		w.round()
	}
	for name := range w.of {
		if w.etcds.Of(name) != 1 {
			t.Errorf("%s is in etcd %d", name, w.etcds.Of(name))
		}
	}
}

// putCustom puts custom resources into an etcd, which must be that of all others.
func (w *world) putCustom(etcd int, names ...string) {
	w.put(etcd, names...)
	for _, name := range names {
		w.custom[name] = true
	}
}

// One custom resource is compared for all. A new one is known at once.
func TestCustomResources(t *testing.T) {
	w := newWorld(t, 1000, 50)
	w.put(0, "namespaces")
	w.put(1, "events")
	w.putCustom(0, "gadgets.shop.test", "widgets.shop.test")
	for range enough - 1 {
		w.round()
		w.want(map[string]int{"gadgets.shop.test": 0, "widgets.shop.test": 0})
	}
	w.round()
	w.want(map[string]int{"namespaces": 1, "events": 2, "gadgets.shop.test": 1, "widgets.shop.test": 1})
	w.putCustom(0, "apples.shop.test")
	w.lists = 0
	w.round()
	w.want(map[string]int{"apples.shop.test": 1, "gadgets.shop.test": 1, "widgets.shop.test": 1})
	if w.lists != 0 {
		t.Errorf("%d lists for a custom resource more", w.lists)
	}
	delete(w.of, "gadgets.shop.test")
	w.round()
	w.want(map[string]int{"gadgets.shop.test": 0, "widgets.shop.test": 1})
}

// The one that is listed for all may fail, for example because of its webhook: the next one is
// listed.
func TestCustomResourceFails(t *testing.T) {
	w := newWorld(t, 1000)
	w.put(0, "namespaces")
	w.putCustom(0, "apples.shop.test", "gadgets.shop.test", "widgets.shop.test")
	w.fails["apples.shop.test"] = true
	for range enough + 2 {
		w.round()
	}
	w.want(map[string]int{"apples.shop.test": 1, "gadgets.shop.test": 1, "widgets.shop.test": 1})
}

// The custom resources alone: nothing but they represents their etcd.
func TestOnlyCustomResources(t *testing.T) {
	w := newWorld(t, 1000)
	w.putCustom(0, "gadgets.shop.test", "widgets.shop.test")
	w.round()
	w.want(map[string]int{"gadgets.shop.test": 1, "widgets.shop.test": 1})
	w.history["widgets.shop.test"] = 1
	if w.round() {
		t.Error("what is known is valid after a restore")
	}
	w.history["gadgets.shop.test"] = 1
	if !w.round() {
		t.Error("one restore is two")
	}
	w.want(map[string]int{"gadgets.shop.test": 2, "widgets.shop.test": 2})
	delete(w.of, "widgets.shop.test")
	if !w.round() {
		t.Error("the end of a resource is a restore")
	}
}

// The etcd of some custom resources in an earlier run is that of all, and is compared again.
func TestCustomResourcesKnownInAnEarlierRun(t *testing.T) {
	w := newWorld(t, 1000, 50)
	w.etcds = New(7)
	w.put(0, "namespaces")
	w.putCustom(1, "gadgets.shop.test", "widgets.shop.test")
	w.known = map[string]int{"namespaces": 2, "widgets.shop.test": 2}
	w.etcds.Observe([]Resource{
		{Name: "namespaces", Etcd: 2}, {Name: "gadgets.shop.test", Custom: true}, {
			Name:   "widgets.shop.test",
			Custom: true,
			Etcd:   2,
		},
	})
	w.want(map[string]int{"namespaces": 2, "gadgets.shop.test": 2, "widgets.shop.test": 2})
	w.round()
	w.want(map[string]int{"namespaces": 2, "gadgets.shop.test": 8, "widgets.shop.test": 8})
}

// The number of lists grows with the resources, not with their pairs. No minute has more than some.
func TestCost(t *testing.T) {
	for _, c := range []struct{ resources, customs, rounds, first, later int }{
		{64, 0, 3, 220, 280}, {64, 1000, 3, 220, 280}, {200, 0, 6, 850, 500}, {1000, 0, 27, 3900, 1500},
	} {
		w := newWorld(t, 1000, 50)
		for k := range c.customs {
			w.putCustom(0, fmt.Sprintf("custom%d.shop.test", k))
		}
		for k := range c.resources {
			w.put(k%10/9, fmt.Sprintf("resource%d.shop.test", k))
		}
		most := 0
		round := func() {
			before := w.lists
			w.round()
			most = max(most, w.lists-before)
		}
		for range c.rounds {
			round()
		}
		for name, etcd := range w.of {
			if got := w.etcds.Of(name); got != etcd+1 {
				t.Errorf("%s is in etcd %d, want %d", name, got, etcd+1)
			}
		}
		first := w.lists
		for range 60 - c.rounds {
			round()
		}
		t.Logf(
			"%d resources, and %d custom ones: %d lists in %d minutes, and %d more in the first hour, %d in a minute at most",
			c.resources, c.customs, first, c.rounds, w.lists-first, most)
		if first > c.first || w.lists-first > c.later || most > 160 {
			t.Errorf("%d resources: %d lists and %d, want at most %d and %d", c.resources, first, w.lists-first,
				c.first, c.later)
		}
	}
}

// TestModel draws etcds, resources, writes, failures, restores and moves. Two resources have one
// number only if they are in one etcd, or were when they were last compared.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		// Two etcds whose versions differ by more than is written while one sandwich is made: which
		// of them has a resource shows in each sandwich.
		n := rapid.IntRange(1, 4).Draw(rt, "etcds")
		var versions []uint64
		for k := range n {
			versions = append(versions, 1+uint64(k)*100_000)
		}
		w := newWorld(t, versions...)
		writes := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(rt, "writes")))
		w.step = func(int) uint64 { return writes.Uint64N(4) }
		for k := range rapid.IntRange(1, 40).Draw(rt, "resources") {
			w.put(rapid.IntRange(0, n-1).Draw(rt, "etcd"), fmt.Sprintf("resource%d", k))
		}
		own := rapid.IntRange(0, n-1).Draw(rt, "etcd of custom resources")
		for k := range rapid.IntRange(0, 5).Draw(rt, "custom resources") {
			w.putCustom(own, fmt.Sprintf("resource%d", 35+k))
		}
		w.alone["resource3"] = rapid.Bool().Draw(rt, "aggregated")
		for range rapid.IntRange(1, 20).Draw(rt, "rounds") {
			name := fmt.Sprintf("resource%d", rapid.IntRange(0, 39).Draw(rt, "resource"))
			_, exists := w.of[name]
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				w.fails[name] = !w.fails[name]
			case 1:
				if exists {
					w.history[name]++
				}
			case 2:
				delete(w.of, name)
			case 3:
				if _, exists := w.of[name+"-new"]; !exists {
					w.put(rapid.IntRange(0, n-1).Draw(rt, "etcd"), name+"-new")
				}
			}
			w.round()
			apart(rt, w)
		}
		clear(w.fails)
		w.minute = func(int) uint64 { return 100 }
		for range longestRest + enough + 1 {
			w.round()
		}
		apart(rt, w)
		for name := range w.of {
			for other := range w.of {
				isOne := w.of[name] == w.of[other] && !w.alone[name] && !w.alone[other] || name == other
				if got := w.etcds.Of(name) == w.etcds.Of(other); got != isOne {
					rt.Fatalf("%s and %s are in one etcd: %t, and %d and %d were found", name, other, isOne,
						w.etcds.Of(name), w.etcds.Of(other))
				}
			}
		}
	})
}

func apart(t *rapid.T, w *world) {
	for name := range w.of {
		for other := range w.of {
			a, b := w.etcds.Of(name), w.etcds.Of(other)
			if a != 0 && a == b && name != other && (w.of[name] != w.of[other] || w.alone[name]) {
				t.Fatalf("%s and %s have one etcd, %d, and are in %d and %d", name, other, a, w.of[name], w.of[other])
			}
		}
	}
}
