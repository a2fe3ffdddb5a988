package informers_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// liveWithin is how long it may take after the last fault until everything is live again. A
// restored etcd in which nothing changes is detected after 10 minutes at the latest.
const liveWithin = 12 * time.Minute

// TestMachine runs random commands on a manager while its API server and its bus respond at random,
// and compares the record with history. Without -rapid.checks (the number of cases of each half)
// and -rapid.seed, these are the same 20 cases each time.
func TestMachine(t *testing.T) {
	for half := range 2 {
		t.Run(fmt.Sprint(half), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				for range half { // else both halves have the same cases if a seed is given
					rapid.Uint64().Draw(rt, "half")
				}
				// rapid uses panics, which must be passed out of the bubble; see TestModel of
				// package queue
				var failure any
				synctest.Test(t, func(t *testing.T) {
					k := newMachine(t, rapid.Uint64().Draw(rt, "seed"))
					k.rt = rt
					defer k.close()
					defer func() { failure = recover() }()
					k.play()
				})
				switch f := failure.(type) {
				case nil:
				case wrong:
					rt.Fatal(string(f))
				default:
					panic(f)
				}
			})
		})
	}
}

// wrong is the failure of a case.
type wrong string

// machine is one case: a manager with all its dependencies, and the state of the model.
type machine struct {
	*customs
	t      *testing.T
	rt     *rapid.T
	memory *memory
	bus    *broker
	log    replaceable
	life   *life
	asked  context.Context // of commands that are under way
	cancel context.CancelFunc
	under  sync.WaitGroup // commands that are under way

	taken   choice
	rewound map[string]uint32 // see isRewound
	crashed bool              // since everything was live the last time
	// a scope ended after a crash: its objects that the crashed run sent after the checkpoint live
	// on (guarantees.md)
	vague    bool
	segment  *segment
	made     map[*version]*segment
	born     map[*version]int
	branches [][]*version
	restored uint64
	floor    uint64 // etcd is not restored to a lower revision
	logs     []int  // how much was on record when the log was replaced
	// how much was on record when a run began without a checkpoint, or a log was replaced that
	// alone had a history number
	blank  []int
	stops  []stop // runs that ended without a crash
	from   uint64 // see truth
	values int

	late    func() time.Duration // before an answer about objects
	faultMu sync.Mutex
	sick    *sickness
	gone    uint64 // watches from below are refused with 410

	notesMu sync.Mutex
	notes   strings.Builder
}

// segment is a part of history. It ends when everything is live and on the bus.
type segment struct{ choices []choice }

// choice is a selection. widgets are taken only if they are defined.
type choice struct{ configmaps, widgets string }

// The ways in which a resource can be selected.
var (
	ofConfigMaps = map[string]func(*selection.Rule){
		"all": nil, "in": selected("in=1", ""), "redacted": redacted("metadata.labels"), "shop": inNamespaces("shop"),
		"in, redacted": func(r *selection.Rule) { r.LabelSelector, r.Redact = "in=1", []string{"metadata.labels"} },
		"shop, other":  inNamespaces("shop", "other"), "not hidden": keepsBack("hidden"), // of TestCrashes
	}
	ofWidgets = map[string]func(*selection.Rule){
		"all":      nil,
		"in":       selected("in=1", ""),
		"redacted": redacted("metadata.labels"),
	}
)

func (c choice) spec() selection.Spec {
	var rules []selection.Rule
	if c.configmaps != "none" {
		rules = append(rules, rule(ofConfigMaps[c.configmaps]))
	}
	if c.widgets != "none" && c.widgets != "undefined" {
		rules = append(rules, widgets(ofWidgets[c.widgets]))
	}
	return specOf(rules...)
}

// takes returns a function that reports whether a version of a resource is selected.
func (c choice) takes(resource string) func(*version) bool {
	way := c.configmaps
	if resource != "configmaps" {
		way = c.widgets
	}
	return func(v *version) bool {
		switch {
		case way == "none", way == "undefined", v.bookmark, resource != "configmaps" && v.namespace != "other",
			way == "shop" && v.namespace != "shop":
			return false
		case way == "not hidden":
			return !strings.HasPrefix(v.value, "hidden")
		default:
			return !strings.HasPrefix(way, "in") || v.labels["in"] == "1"
		}
	}
}

func newMachine(t *testing.T, seed uint64) *machine {
	k := &machine{
		customs: newCustoms(t), t: t, memory: newMemory(), bus: newBroker(seed), restored: math.MaxUint64,
		made: map[*version]*segment{}, born: map[*version]int{},
	}
	late, lateMu := rand.New(rand.NewPCG(seed, 3)), sync.Mutex{}
	k.late = func() time.Duration {
		// time passes only while all goroutines wait: without delays, no fault would affect a
		// request in flight
		lateMu.Lock()
		defer lateMu.Unlock()
		return time.Duration(late.Int64N(int64(600 * time.Microsecond)))
	}
	k.fault = k.answers
	k.meanwhile = func() { wait(t.Context(), k.late()) }
	k.asked, k.cancel = context.WithCancel(t.Context())
	k.under.Go(func() { k.bus.run(k.asked) })
	return k
}

// close ends everything.
func (k *machine) close() {
	k.heal()
	if k.life != nil {
		k.life.end()
	}
	k.cancel()
	k.under.Wait()
}

func (k *machine) fail(format string, args ...any) {
	k.notesMu.Lock()
	defer k.notesMu.Unlock()
	panic(wrong(fmt.Sprintf(format, args...) + "\n" + k.notes.String()))
}

func (k *machine) note(format string, args ...any) {
	k.notesMu.Lock()
	defer k.notesMu.Unlock()
	fmt.Fprintf(&k.notes, format+"\n", args...)
}

// play runs a case.
func (k *machine) play() {
	k.do(func() { k.rv++ })
	k.initial = rapid.Bool().Draw(k.rt, "initial events")
	k.note("watches begin with the existing objects: %t", k.initial)
	if rapid.Bool().Draw(k.rt, "defined") {
		k.define(true)
	}
	k.taken = k.drawChoice()
	k.begins()
	k.write(8)
	k.floor = k.now1()
	k.start()
	k.rt.Repeat(map[string]func(*rapid.T){
		"":              func(*rapid.T) {},
		"write":         func(*rapid.T) { k.write(8) },
		"fault":         k.step(k.falls),
		"heal":          k.step(func() { k.heal() }),
		"break":         k.step(k.CloseClientConnections),
		"expire":        k.step(k.expires),
		"compact":       k.step(k.compacts),
		"restore":       k.step(k.restoresVisibly),
		"restore again": k.step(k.restoresVisibly),
		"reload":        k.step(k.reloads),
		"snapshot":      k.step(k.snapshots),
		"define":        k.step(k.defines),
		"rebase":        k.step(k.rebases),
		"crash":         k.step(func() { k.restarts(true) }),
		"restart":       k.step(func() { k.restarts(false) }),
		"save":          k.step(func() { _ = k.memory.Flush(k.t.Context()) }),
		"bookmark":      k.step(func() { k.bookmark() }),
		"hold":          k.step(k.holds),
		"settle":        k.step(k.goesLive),
	})
	k.goesLive()
	k.judge()
}

// step returns a command that makes changes, calls f and lets time pass.
func (k *machine) step(f func()) func(*rapid.T) {
	return func(*rapid.T) {
		k.write(3)
		f()
		k.passes()
	}
}

func (k *machine) passes() {
	d := rapid.SampledFrom(
		[]time.Duration{
			0, 300 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond,
			2 * time.Second, 30 * time.Second, 200 * time.Second,
		}).Draw(k.rt, "pass")
	k.note("%v pass", d)
	wait(k.t.Context(), d)
}

// write makes up to n changes.
func (k *machine) write(n int) {
	for range rapid.IntRange(0, n).Draw(k.rt, "changes") {
		what := rapid.IntRange(0, 79).Draw(k.rt, "change")
		namespace, name := "shop", fmt.Sprint("o", what%4)
		what = what / 4
		if what%2 == 1 && k.defined {
			namespace = "other"
		}
		what /= 2
		if what < 2 {
			k.added(k.deleteIn(namespace, name))
		} else {
			k.values++
			k.added(k.putIn(namespace, name, fmt.Sprint(k.values), map[string]string{"in": fmt.Sprint(min(1, what%3))}))
		}
	}
}

// added adds a new version to the model; nil: there is none.
func (k *machine) added(v *version) {
	if v != nil {
		k.made[v], k.born[v] = k.segment, k.bus.count()
	}
}

// begins begins a segment of history.
func (k *machine) begins() {
	k.segment = &segment{}
	k.chosen()
}

// chosen adds to the model the choice that may be in force from now on.
func (k *machine) chosen() {
	c := k.taken
	if !k.defined {
		c.widgets = "undefined"
	}
	if n := len(k.segment.choices); n > 0 {
		last := k.segment.choices[n-1]
		if last.widgets == "undefined" {
			last.widgets = c.widgets
		}
		k.vague = k.vague || k.crashed && last != c
	}
	k.segment.choices = append(k.segment.choices, c)
}

// isRewound reports whether a scope may not know about the last restore of etcd. It has not
// detected the restore, or its checkpoint still has the previous history number, so a new run does
// not know about it. In this time, three cases are excepted from the guarantees (guarantees.md,
// "What is not guaranteed"), and the model leaves them out:
//
//   - If the API server does not answer within 10 s, changes continue (falls).
//   - If the version that the scope saw last is compacted, the restore may not be found (compacts).
//   - A scope that begins at the position of another selection compares nothing. A scope without a
//     position gets the history number of the scopes that run. Both send the new history under the
//     old number (drawChoice, defines).
func (k *machine) isRewound() bool {
	maps.DeleteFunc(k.rewound, func(scope string, was uint32) bool {
		c, ok := k.memory.saved(scope)
		return ok && c.History > was
	})
	return len(k.rewound) > 0
}

func (k *machine) drawChoice() choice {
	if k.isRewound() {
		return k.taken
	}
	c := choice{
		configmaps: rapid.SampledFrom([]string{"all", "in", "redacted", "shop", "in, redacted", "none"}).
			Draw(k.rt, "configmaps"),
		widgets: rapid.SampledFrom([]string{"all", "in", "redacted", "none"}).Draw(k.rt, "widgets"),
	}
	if c.configmaps == "none" && c.widgets == "none" {
		c.configmaps = "all"
	}
	k.note("selected: %+v", c)
	return c
}

func (k *machine) start() {
	k.bus.revive()
	if len(k.memory.Scopes()) == 0 {
		k.blank = append(k.blank, k.bus.count())
	}
	k.life = live(k.t, k.apiServer, k.memory, func(o *informers.Options, r *recorder) {
		k.log.use(o, r)
		o.Spec = k.taken.spec()
		o.Lane = func(string) store.Lane { return k.bus }
		o.LastEvent = func(_ context.Context, of *object.Resource) (informer.LastEvent, bool, error) {
			return k.lastEvent(of)
		}
		o.Log = slog.New(slog.NewTextHandler(noted(k.note), nil))
	})
}

func (k *machine) reloads() {
	k.taken = k.drawChoice()
	k.chosen()
	k.reload()
}

// reload makes the manager take the selection, and waits for that: two concurrent reloads have no
// defined order.
func (k *machine) reload() {
	began := time.Now()
	if err := k.life.set.Reload(k.asked, k.taken.spec()); err != nil {
		k.fail("reload: %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		k.fail("reload took %v", took)
	}
}

func (k *machine) snapshots() {
	namespace := rapid.SampledFrom([]string{"", "", "shop", "other"}).Draw(k.rt, "namespace")
	within := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(k.rt, "within")
	k.note("a snapshot of namespace %q", namespace)
	l := k.life
	k.under.Go(func() {
		ctx, cancel := context.WithTimeout(k.asked, within)
		defer cancel()
		if _, err := l.set.Snapshot(ctx, "", namespace); err != nil {
			k.note("snapshot: %v", err)
		}
	})
}

// defines creates the definition of widgets, or deletes all widgets and then their definition.
func (k *machine) defines() {
	if k.isRewound() {
		return
	}
	if k.defined {
		k.mu.Lock()
		all := slices.Sorted(maps.Keys(k.now))
		k.mu.Unlock()
		for _, key := range all {
			if name, ok := strings.CutPrefix(key, "other/"); ok {
				k.added(k.deleteIn("other", name))
			}
		}
	}
	k.note("widgets are defined: %t", !k.defined)
	k.define(!k.defined)
	k.floor = k.now1()
	k.chosen()
	if !k.defined {
		k.CloseClientConnections()
	}
}
