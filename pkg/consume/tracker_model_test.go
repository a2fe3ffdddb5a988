package consume_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A Tracker reads a simulated stream: two scopes of a cluster that changes all the time, watched by an agent that crashes in
// the middle of snapshots, misses what happens meanwhile, takes another snapshot, and whose records come twice, late and
// in another order among objects. After each record the Tracker must say what a model says that keeps the whole log and
// goes by the letter of the contract; and after a snapshot of all scopes it must know the objects that there are.
func TestTrackerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, truth: map[string]thing{}, tracker: &consume.Tracker{Forget: time.Hour}, queued: map[string][]*consume.Event{}}
		w.model = &model{highest: map[string]uint64{}, alive: map[string]consume.Object{}, deleted: map[string]bool{}}
		w.agent.restart(w)
		t.Repeat(map[string]func(*rapid.T){
			"create": func(*rapid.T) { w.change(true) },
			"change": func(*rapid.T) { w.change(false) },
			"delete": func(*rapid.T) { w.remove() },
			"work":   func(*rapid.T) { w.agent.work(w) },
			"send":   func(*rapid.T) { w.send() },
			"again":  func(*rapid.T) { w.again() },
			"crash": func(t *rapid.T) {
				w.agent = agent{}
				clear(w.queued)
				for range rapid.IntRange(0, 3).Draw(t, "unseen changes") {
					w.change(rapid.Bool().Draw(t, "create"))
					w.remove()
				}
				w.agent.restart(w)
			},
			"save": func(t *rapid.T) {
				saved, err := json.Marshal(w.tracker)
				if err != nil {
					t.Fatal(err)
				}
				w.tracker = &consume.Tracker{Forget: time.Hour}
				if err := json.Unmarshal(saved, w.tracker); err != nil {
					t.Fatal(err)
				}
			},
		})
		w.agent = agent{}
		clear(w.queued)
		w.agent.restart(w)
		for len(w.agent.snapshots) > 0 {
			w.agent.work(w)
			w.flush()
		}
		want := slices.SortedFunc(maps.Values(w.objects()), byName)
		got := slices.SortedFunc(w.tracker.All(), byName)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("after a snapshot of all: -there is +known\n%s", diff)
		}
	})
}

// thing is an object of the cluster.
type thing struct {
	uid, namespace, name string
	rv                   uint64
}

type world struct {
	t       *rapid.T
	rv      uint64
	uids    int
	truth   map[string]thing // by namespace/name
	agent   agent
	queued  map[string][]*consume.Event // by object: on its way to the bus, each object's in order
	log     []*consume.Event            // the bus
	tracker *consume.Tracker
	model   *model
}

var scopes = []string{"pods/a", "pods/b"}

func (w *world) objects() map[string]consume.Object {
	out := map[string]consume.Object{}
	for key, o := range w.truth {
		out[key] = consume.Object{Source: "/kubernetes/x", Resource: "pods", Namespace: o.namespace, Name: o.name, UID: o.uid}
	}
	return out
}

func (w *world) change(create bool) {
	ns, name := rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "namespace"), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(w.t, "name")
	key := ns + "/" + name
	o, exists := w.truth[key]
	if exists == create {
		return
	}
	w.rv++
	op := consume.Updated
	if create {
		w.uids++
		o, op = thing{uid: fmt.Sprint("uid-", w.uids), namespace: ns, name: name}, consume.Created
	}
	o.rv = w.rv
	w.truth[key] = o
	w.agent.saw(w, op, o)
}

func (w *world) remove() {
	keys := slices.Sorted(maps.Keys(w.truth))
	if len(keys) == 0 {
		return
	}
	o := w.truth[rapid.SampledFrom(keys).Draw(w.t, "key")]
	delete(w.truth, o.namespace+"/"+o.name)
	w.rv++
	o.rv = w.rv
	w.agent.saw(w, consume.Deleted, o)
}

// agent is the one of the project, as far as the stream shows it: markers are acknowledged before what follows, live
// deltas wait for the start of the snapshot, and each object's records leave in order.
type agent struct {
	running   bool
	snapshots map[string]*snapshot // under way, by scope
}

type snapshot struct {
	id    string
	rv    uint64
	reads map[string]thing
}

func (a *agent) restart(w *world) {
	a.running, a.snapshots = true, map[string]*snapshot{}
	w.rv++
	for _, scope := range scopes {
		s := &snapshot{id: fmt.Sprint("S", w.rv), rv: w.rv, reads: map[string]thing{}}
		for key, o := range w.truth {
			if "pods/"+o.namespace == scope {
				s.reads[key] = o
			}
		}
		a.snapshots[scope] = s
		w.deliver(marker(consume.TypeSnapshotStarted, scope, s))
	}
}

func marker(typ, scope string, s *snapshot) *consume.Event {
	return &consume.Event{
		ID: scope + "/" + s.id + typ, Type: typ, Source: "/kubernetes/x", APIVersion: "v1", Resource: "pods", Scope: scope,
		Sequence: fmt.Sprintf("%020d", s.rv), Stream: &consume.Stream{Snapshot: s.id},
	}
}

// saw is a live delta. What is still to be read of the object goes first.
func (a *agent) saw(w *world, op consume.Op, o thing) {
	if !a.running {
		return
	}
	a.read(w, o.namespace+"/"+o.name)
	w.enqueue(op, o, "")
}

func (a *agent) read(w *world, key string) {
	for _, s := range a.snapshots {
		if o, due := s.reads[key]; due {
			delete(s.reads, key)
			w.enqueue(consume.Read, o, s.id)
		}
	}
}

// work reads an object, or completes a snapshot.
func (a *agent) work(w *world) {
	if scopes := slices.Sorted(maps.Keys(a.snapshots)); len(scopes) > 0 {
		scope, s := scopes[0], a.snapshots[scopes[0]]
		if keys := slices.Sorted(maps.Keys(s.reads)); len(keys) > 0 {
			a.read(w, rapid.SampledFrom(keys).Draw(w.t, "read"))
			return
		}
		for _, events := range w.queued {
			if slices.ContainsFunc(events, func(e *consume.Event) bool { return e.Op == consume.Read && e.Data.Snapshot == s.id }) {
				return // completed follows the last acknowledged read
			}
		}
		delete(a.snapshots, scope)
		w.deliver(marker(consume.TypeSnapshotCompleted, scope, s))
	}
}

func (w *world) enqueue(op consume.Op, o thing, snapshot string) {
	key := o.namespace + "/" + o.name
	w.queued[key] = append(w.queued[key], &consume.Event{
		ID: fmt.Sprint(o.uid, "/", o.rv, "/", op, "/", snapshot), Source: "/kubernetes/x", APIVersion: "v1", Resource: "pods",
		Op: op, Namespace: o.namespace, Name: o.name, UID: o.uid, Sequence: fmt.Sprintf("%020d", o.rv),
		Data: &consume.Data{Op: op, Snapshot: snapshot},
	})
}

func (w *world) send() {
	keys := slices.Sorted(maps.Keys(w.queued))
	if len(keys) == 0 {
		return
	}
	key := rapid.SampledFrom(keys).Draw(w.t, "send")
	e := w.queued[key][0]
	if w.queued[key] = w.queued[key][1:]; len(w.queued[key]) == 0 {
		delete(w.queued, key)
	}
	w.deliver(e)
}

func (w *world) flush() {
	for len(w.queued) > 0 {
		w.send()
	}
}

// again is a late copy of any record so far, from before a crash too.
func (w *world) again() {
	if len(w.log) > 0 {
		w.deliver(w.log[rapid.IntRange(0, len(w.log)-1).Draw(w.t, "copy of")])
	}
}

func (w *world) deliver(e *consume.Event) {
	w.log = append(w.log, e)
	if e.Time.IsZero() { // else it is a copy
		e.Time = noon.Add(time.Duration(len(w.log)) * time.Second)
	}
	got, want := w.tracker.Apply(e), w.model.apply(e)
	if diff := gocmp.Diff(want, got); diff != "" {
		w.t.Fatalf("record %d, %s: -model +tracker\n%s", len(w.log), e.ID, diff)
	}
	if diff := gocmp.Diff(slices.SortedFunc(maps.Values(w.model.alive), byName), slices.SortedFunc(w.tracker.All(), byName)); diff != "" {
		w.t.Fatalf("record %d, %s: -model +tracker\n%s", len(w.log), e.ID, diff)
	}
}

// model goes by the contract and forgets nothing.
type model struct {
	log     []*consume.Event
	news    []bool
	highest map[string]uint64
	deleted map[string]bool
	alive   map[string]consume.Object
}

func (m *model) apply(e *consume.Event) consume.Verdict {
	v := consume.Verdict{News: m.isNews(e)}
	m.log, m.news = append(m.log, e), append(m.news, v.News)
	switch {
	case !v.News:
	case e.Type == consume.TypeSnapshotCompleted:
		v.Gone = m.sweep(e)
	case e.Stream != nil:
	case e.Op == consume.Deleted:
		delete(m.alive, e.UID)
		m.deleted[e.UID] = true
	default:
		for uid, o := range m.alive { // the name is another's now
			if uid != e.UID && o.Namespace == e.Namespace && o.Name == e.Name {
				v.Gone = append(v.Gone, o)
				delete(m.alive, uid)
			}
		}
		m.alive[e.UID] = consume.Object{Source: e.Source, Resource: "pods", Namespace: e.Namespace, Name: e.Name, UID: e.UID}
	}
	if v.News && e.Data != nil {
		m.highest[e.UID] = number(e.Sequence)
	}
	return v
}

// isNews: a copy never is, and of an object only what is above all before.
func (m *model) isNews(e *consume.Event) bool {
	if slices.ContainsFunc(m.log, func(o *consume.Event) bool { return o.ID == e.ID }) {
		return false
	}
	if e.Stream != nil {
		return true
	}
	highest, known := m.highest[e.UID]
	return !known || number(e.Sequence) > highest
}

// sweep: what of the scope was neither read by the snapshot nor changed since its start. A later start of the scope
// makes the end of an earlier one impossible here, as with the agent.
func (m *model) sweep(completed *consume.Event) []consume.Object {
	start := slices.IndexFunc(m.log, func(e *consume.Event) bool {
		return e.Type == consume.TypeSnapshotStarted && e.Scope == completed.Scope && e.Stream.Snapshot == completed.Stream.Snapshot
	})
	touched := map[string]bool{}
	for i, e := range m.log[start:] {
		if e.Data != nil && (e.Op == consume.Read && e.Data.Snapshot == completed.Stream.Snapshot || e.Op != consume.Read && m.news[start+i]) {
			touched[e.UID] = true
		}
	}
	var gone []consume.Object
	for uid, o := range m.alive {
		if "pods/"+o.Namespace == completed.Scope && !touched[uid] {
			gone = append(gone, o)
			delete(m.alive, uid)
		}
	}
	slices.SortFunc(gone, byName)
	return gone
}

func number(s string) uint64 {
	var n uint64
	if _, err := fmt.Sscanf(s, "%d", &n); err != nil {
		panic(err)
	}
	return n
}
