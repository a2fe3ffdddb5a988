package timeline_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// succession is a generated record of scopes that begin, end, begin again, and pass from one agent
// to another. Agents are killed, and resume. It knows when each scope was observed, and what etcd
// had.
type succession struct {
	t       *rapid.T
	clock   time.Time
	rv      uint64
	ids     int
	etcd    []revision
	keepers []*keeper
	scopes  map[string]*observed
	log     []*consume.Event
}

// keeper is an agent.
type keeper struct {
	name   string
	run    string
	number int
	next   time.Time // of the next progress
	alive  bool
	holds  map[string]*hold // by scope
}

// hold is the knowledge of an agent about a scope that it observes.
type hold struct {
	acked, saved  uint64    // everything is sent up to acked; saved is that of the checkpoint
	seen, said    time.Time // of the last frame; the last progress claims everything up to said
	claimed       uint64    // by the last progress
	since         time.Time // observed without an interruption
	first         uint64    // the first snapshot
	interruptions []consume.Interruption
}

// observed is the truth about a scope: when it was observed, and when it had ended. The record
// shows both.
type observed struct {
	known        map[string]bool // agents that have observed it
	times, ended []stretch
	versions     []versions
	gone         []versions
	end          *mark
	reason       consume.EndReason
}

type mark struct {
	rv   uint64
	time time.Time
}

type (
	stretch  struct{ from, until time.Time }
	versions struct{ from, until uint64 }
)

var successionScopes = []string{"pods/a", "pods/b"}

func namespaceOf(scope string) string { return strings.TrimPrefix(scope, "pods/") }

func newSuccession(t *rapid.T) *succession {
	x := &succession{
		t:      t,
		clock:  time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		rv:     100,
		scopes: map[string]*observed{},
	}
	for _, scope := range successionScopes {
		x.scopes[scope] = &observed{known: map[string]bool{}}
	}
	for _, name := range []string{"v", "w"} {
		k := &keeper{name: name, holds: map[string]*hold{}}
		x.keepers = append(x.keepers, k)
		x.wake(k)
	}
	return x
}

func (x *succession) tick() { x.clock = x.clock.Add(time.Millisecond) }

func (x *succession) send(e *consume.Event) *consume.Event {
	e.Source, e.Time = source, x.clock
	x.log = append(x.log, e)
	return e
}

func (x *succession) stream(typ, scope string, k *keeper, rv uint64) *consume.Event {
	x.tick()
	return x.send(&consume.Event{
		ID:         fmt.Sprintf("%s/%s/%d", scope, typ, len(x.log)),
		Type:       consume.EventType(consume.TypePrefix + typ),
		APIVersion: "v1",
		Kind:       "Pod",
		Resource:   "pods",
		Scope:      scope,
		Sequence:   fmt.Sprintf("%020d", rv),
		Stream: &consume.Stream{
			ResourceVersion: fmt.Sprint(rv),
			Writer:          k.name,
			Run:             k.run,
		},
	})
}

// object sends an event of a version. A deletion, and a left event, has a version of its own.
func (x *succession) object(op consume.Op, o thing, rv uint64, id string) *consume.Event {
	e := &consume.Event{
		ID:              fmt.Sprintf("pods/%s/%s", o.uid, id),
		Type:            consume.TypePrefix + "object.x",
		APIVersion:      "v1",
		Kind:            "Pod",
		Resource:        "pods",
		Namespace:       o.namespace,
		Name:            o.name,
		UID:             o.uid,
		Op:              op,
		ResourceVersion: fmt.Sprint(rv),
		Sequence:        fmt.Sprintf("%020d", rv),
		Data:            &consume.Data{Op: op, ResourceVersion: fmt.Sprint(rv)},
	}
	if op != consume.Deleted && op != consume.Left {
		e.Data.After = json.RawMessage(`{"kind":"Pod"}`)
	}
	return x.send(e)
}

// at returns the objects of a namespace after the revisions for which counts returns true.
func (x *succession) at(namespace string, counts func(revision) bool) map[string]thing {
	out := map[string]thing{}
	for _, r := range x.etcd {
		if r.namespace != namespace || !counts(r) {
			continue
		}
		out[r.name] = r.thing
		if r.gone {
			delete(out, r.name)
		}
	}
	return out
}

func (x *succession) now(namespace string) map[string]thing {
	return x.at(namespace, func(revision) bool { return true })
}

// write changes an object. All agents that observe it see that at once.
func (x *succession) write(namespace, name string, remove bool) {
	was, exists := x.now(namespace)[name]
	if remove && !exists {
		return
	}
	x.rv++
	x.tick()
	o := thing{uid: was.uid, namespace: namespace, name: name, rv: x.rv, gone: remove}
	if !exists {
		x.ids++
		o.uid = fmt.Sprint("uid-", x.ids)
	}
	x.etcd = append(x.etcd, revision{o, x.clock})
	for _, k := range x.keepers {
		if h := k.holds["pods/"+namespace]; k.alive && h != nil {
			x.show(h, o, !exists)
		}
	}
}

func (x *succession) show(h *hold, o thing, isNew bool) {
	switch {
	case o.gone:
		x.object(consume.Deleted, o, o.rv, "d")
	case isNew:
		x.object(consume.Created, o, o.rv, fmt.Sprint(o.rv))
	default:
		x.object(consume.Updated, o, o.rv, fmt.Sprint(o.rv))
	}
	h.acked, h.seen = o.rv, x.clock
}

// pass lets time pass, with a bookmark every ten seconds and a progress each minute.
func (x *succession) pass(d time.Duration) {
	for end := x.clock.Add(d); x.clock.Before(end); {
		x.clock = x.clock.Add(10 * time.Second)
		x.rv++ // of another resource
		for _, k := range x.keepers {
			if !k.alive {
				continue
			}
			for _, scope := range slices.Sorted(maps.Keys(k.holds)) {
				h := k.holds[scope]
				h.acked, h.seen = x.rv, x.clock
			}
			if !x.clock.Before(k.next) {
				x.report(k)
			}
		}
	}
}

// report sends the progress of an agent.
func (x *succession) report(k *keeper) {
	x.tick()
	k.number++
	k.next = x.clock.Add(time.Minute)
	p := &consume.Progress{
		Writer: k.name,
		Run:    k.run,
		Number: k.number,
		Since:  latest(x.clock.Add(-repeats), runBegan(k.run)),
	}
	for _, scope := range slices.Sorted(maps.Keys(k.holds)) {
		h := k.holds[scope]
		p.Scopes = append(p.Scopes, consume.ScopeProgress{
			Resource:        "pods",
			Scope:           scope,
			ResourceVersion: fmt.Sprint(h.acked),
			To:              h.seen,
			Interruptions:   h.interruptions,
		})
		h.saved = h.acked
		h.claimed = h.acked
		h.said = h.seen
	}
	x.send(&consume.Event{
		ID:       fmt.Sprintf("progress/%s/%s/%d", k.name, k.run, k.number),
		Type:     consume.TypeProgress,
		Progress: p,
	})
}

// wake starts an agent. It resumes the scopes that it observed.
func (x *succession) wake(k *keeper) {
	if k.alive {
		return
	}
	x.tick()
	k.alive = true
	k.number = 0
	k.next = x.clock.Add(time.Minute)
	k.run = fmt.Sprintf("0-%d", x.clock.UnixMilli())
	for _, scope := range slices.Sorted(maps.Keys(k.holds)) {
		h := k.holds[scope]
		from := latest(h.said, h.since) // the checkpoint has no later time
		x.stream("scope.started", scope, k, h.acked).Stream.Continued = true
		known := x.at(namespaceOf(scope), func(r revision) bool { return r.rv <= h.acked })
		for _, r := range x.etcd {
			if r.namespace != namespaceOf(scope) || r.rv <= h.acked {
				continue
			}
			x.tick()
			_, exists := known[r.name]
			x.show(h, r.thing, !exists)
			known[r.name] = r.thing
			if r.gone {
				delete(known, r.name)
			}
		}
		x.tick()
		h.acked = x.rv
		h.seen = x.clock
		h.since = x.clock
		h.interruptions = append(h.interruptions, consume.Interruption{
			Why:   consume.InterruptedStart,
			From:  from,
			Until: x.clock,
		})
	}
}

// kill ends an agent. Its checkpoint may be older than what it has sent.
func (x *succession) kill(k *keeper) {
	if !k.alive {
		return
	}
	k.alive = false
	for scope, h := range k.holds {
		x.scopes[scope].observedUntil(h)
		if rapid.Bool().Draw(x.t, "checkpoint is old") && h.saved > 0 {
			h.acked = h.saved
		}
		h.interruptions = nil
	}
}

// observedUntil notes up to when the record shows that an agent observed the scope.
func (o *observed) observedUntil(h *hold) {
	o.times = append(o.times, stretch{h.since, h.said})
	o.versions = append(o.versions, versions{h.first, h.claimed})
}

// begin makes an agent observe a scope, with a snapshot. If another agent observes it, that one
// ends.
func (x *succession) begin(k *keeper, scope string) {
	if !k.alive || k.holds[scope] != nil {
		return
	}
	o := x.scopes[scope]
	x.rv++
	h := &hold{acked: x.rv, first: x.rv, seen: x.clock}
	if o.end != nil {
		x.endStretch(o)
		gap := x.stream("gap", scope, k, x.rv)
		gap.Stream = &consume.Stream{
			Reason:              consume.ReasonSelectionChanged,
			FromResourceVersion: fmt.Sprint(o.end.rv),
			ToResourceVersion:   fmt.Sprint(x.rv),
			Since:               o.end.time,
		}
		gap.Sequence = ""
		o.end = nil
	}
	// An agent that takes over has no position.
	takesOver := slices.ContainsFunc(x.keepers, func(other *keeper) bool { return other.holds[scope] != nil })
	initial := !o.known[k.name] || takesOver
	x.stream("scope.started", scope, k, x.rv).Stream.Initial = initial
	x.ids++
	id := fmt.Sprint("S", x.ids)
	started := x.stream("snapshot.started", scope, k, x.rv)
	started.Stream.Snapshot, started.Stream.Initial = id, initial
	all := x.now(namespaceOf(scope))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		x.tick()
		x.object(consume.Read, all[name], all[name].rv, fmt.Sprintf("%d/r/%s", all[name].rv, id)).Data.Snapshot = id
	}
	x.stream("snapshot.completed", scope, k, x.rv).Stream.Snapshot = id
	h.seen, h.since = x.clock, x.clock
	k.holds[scope], o.known[k.name] = h, true
	for _, other := range x.keepers {
		if before := other.holds[scope]; other != k && before != nil {
			o.observedUntil(before)
			delete(other.holds, scope)
			delete(o.known, other.name) // it has no position any more
			x.stream("scope.ended", scope, other, before.acked).Stream.End = consume.EndTakenOver
		}
	}
}

// endStretch notes up to when the record shows that no agent observes the scope.
func (x *succession) endStretch(o *observed) {
	if o.reason != consume.EndForgotten {
		o.ended = append(o.ended, stretch{o.end.time, x.clock})
		o.gone = append(o.gone, versions{o.end.rv, x.rv - 1})
	}
}

// end ends the observation of a scope: it is no longer selected, or its resource is removed.
func (x *succession) end(k *keeper, scope string, reason consume.EndReason) {
	h, o := k.holds[scope], x.scopes[scope]
	if h == nil || !k.alive {
		return
	}
	namespace := namespaceOf(scope)
	all := x.now(namespace)
	names := slices.Sorted(maps.Keys(all))
	if reason == consume.EndRemoved {
		for _, name := range names {
			x.write(namespace, name, true)
		}
		names = nil
	}
	if rapid.Bool().Draw(x.t, "progress") { // otherwise the agent is of an earlier build
		x.report(k)
	}
	o.observedUntil(h)
	x.rv++
	if reason == consume.EndDeselected {
		gap := x.stream("gap", scope, k, x.rv)
		gap.Stream = &consume.Stream{
			Reason:              consume.ReasonSelectionChanged,
			FromResourceVersion: fmt.Sprint(h.acked),
			ToResourceVersion:   fmt.Sprint(x.rv),
			Since:               h.seen,
		}
	}
	for _, name := range names {
		x.tick()
		x.object(consume.Left, all[name], x.rv, fmt.Sprintf("%d/l", x.rv))
	}
	x.stream("scope.ended", scope, k, x.rv).Stream.End = reason
	delete(k.holds, scope)
	o.end, o.reason = &mark{x.rv, x.clock}, reason
}

// A generated record has scopes that end and begin again. The test asks about random moments. An
// exact answer has the objects of etcd, or says that the scope has ended. An answer is exact if the
// record shows that the scope was observed at the moment, or had ended.
func TestSuccession(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newSuccession(t)
		x.live(t)
		if len(x.log) == 0 {
			return
		}
		for range 20 {
			e := rapid.SampledFrom(x.log).Draw(t, "near")
			x.check(
				timeline.At(
					e.Time.Add(time.Duration(rapid.IntRange(-90_000, 90_000).Draw(t, "ms")) * time.Millisecond)))
			x.check(timeline.AtVersion(uint64(rapid.IntRange(100, int(x.rv)).Draw(t, "version")), 0))
		}
	})
}

// live lets the agents work for a while.
func (x *succession) live(t *rapid.T) {
	keeper := func(t *rapid.T) *keeper { return rapid.SampledFrom(x.keepers).Draw(t, "agent") }
	scope := func(t *rapid.T) string { return rapid.SampledFrom(successionScopes).Draw(t, "scope") }
	t.Repeat(map[string]func(*rapid.T){
		"write": func(t *rapid.T) {
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				x.write(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"),
					rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"), rapid.IntRange(0, 2).Draw(t, "remove") == 0)
			}
		},
		"pass":   func(t *rapid.T) { x.pass(time.Duration(rapid.IntRange(1, 20).Draw(t, "tens")) * 10 * time.Second) },
		"begin":  func(t *rapid.T) { x.begin(keeper(t), scope(t)) },
		"leave":  func(t *rapid.T) { x.end(keeper(t), scope(t), consume.EndDeselected) },
		"remove": func(t *rapid.T) { x.end(keeper(t), scope(t), consume.EndRemoved) },
		"kill":   func(t *rapid.T) { x.kill(keeper(t)) },
		"wake":   func(t *rapid.T) { x.wake(keeper(t)) },
	})
	x.pass(3 * time.Minute)
	for name, o := range x.scopes {
		for _, k := range x.keepers {
			if h := k.holds[name]; h != nil {
				o.observedUntil(h)
			}
		}
		if o.end != nil {
			x.endStretch(o)
		}
	}
}

// check compares the answer at a moment with the truth.
func (x *succession) check(m timeline.Moment) {
	s := timeline.NewState(m, timeline.Options{})
	for _, e := range x.log {
		s.Add(e)
	}
	rv, _, byVersion := m.ResourceVersion()
	said := map[string]certainty.Scope{}
	for _, scope := range s.Scopes() {
		said[scope.Name] = scope
	}
	for _, name := range successionScopes {
		o, is := x.scopes[name], said[name]
		isLive := slices.ContainsFunc(o.times, func(s stretch) bool {
			return !m.Time().Before(s.from) && !m.Time().After(s.until)
		})
		hasEnded := slices.ContainsFunc(o.ended, func(s stretch) bool {
			return !m.Time().Before(s.from) && m.Time().Before(s.until)
		})
		if byVersion {
			isLive = slices.ContainsFunc(o.versions, func(v versions) bool { return v.from <= rv && rv <= v.until })
			hasEnded = slices.ContainsFunc(o.gone, func(v versions) bool { return v.from <= rv && rv <= v.until })
		}
		isExact := is.Certainty == certainty.Exact
		if isLive && (!isExact || is.Ended != nil) || hasEnded && !isLive && (!isExact || is.Ended == nil) {
			x.explain()
			x.t.Fatalf("at %s: %s is observed: %t, has ended: %t; the answer is %+v", m, name, isLive, hasEnded, is)
		}
		if isExact {
			x.compare(m, s, name, is.Ended != nil)
		}
	}
}

// compare compares the objects of a scope that is exact with those of etcd.
func (x *succession) compare(m timeline.Moment, s *timeline.State, scope string, ended bool) {
	rv, _, byVersion := m.ResourceVersion()
	want, got := map[string]string{}, map[string]string{}
	if !ended {
		for name, o := range x.at(namespaceOf(scope),
			func(r revision) bool { return byVersion && r.rv <= rv || !byVersion && !r.time.After(m.Time()) }) {
			want[name] = fmt.Sprint(o.uid, " ", o.rv)
		}
	}
	for _, v := range s.Objects() {
		if v.Namespace == namespaceOf(scope) {
			got[v.Name] = v.UID + " " + v.ResourceVersion
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		x.explain()
		x.t.Fatalf("at %s: %s is exact, ended: %t: -etcd +answer\n%s", m, scope, ended, diff)
	}
}

// explain logs the record.
func (x *succession) explain() {
	for n, e := range x.log {
		text, err := json.Marshal([]any{e.Progress, e.Stream})
		x.t.Logf("%3d %s %s %s/%s %s %s %v", n, e.Time.Format("15:04:05.000"), e.ID, e.Namespace, e.Name, e.Op, text,
			err)
	}
}
