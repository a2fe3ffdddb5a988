package consume_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A Tracker reads a simulated stream of two scopes. The cluster changes all the time, and its etcd
// is restored now and then, and serves known versions in another form. The agent crashes during
// snapshots. It then resumes them, or restarts without state, misses changes and takes new
// snapshots. It also takes snapshots on demand, of a scope or a part of one. Records are
// duplicated, delayed and reordered among objects. After each record, the Tracker must agree with a
// model that keeps the whole log and follows the contract literally. After a snapshot of all
// scopes, the Tracker must hold exactly the objects that exist.
//
// Two agents observe each scope, in runs that start and end the observation of the scopes and send
// progress. Some records of a run come after those of a later one.
//
// The stream has three such worlds: two clusters of one name, and another resource of the first
// cluster. Their objects have the same uids.
func TestTrackerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		read := &reading{&consume.Tracker{Forget: time.Hour}}
		worlds := []*world{
			newWorld(t, read, "uid-of-a", ""), newWorld(t, read, "uid-of-b", ""),
			newWorld(t, read, "uid-of-a", "twins.example.com"),
		}
		of := func(f func(*world)) func(*rapid.T) {
			return func(t *rapid.T) { f(rapid.SampledFrom(worlds).Draw(t, "world")) }
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": of(func(w *world) { w.change(true) }),
			"change": of(func(w *world) { w.change(false) }),
			"delete": of(func(w *world) { w.remove() }),
			"work":   of(func(w *world) { w.agent.work(w) }),
			"send":   of(func(w *world) { w.send() }),
			"again":  of(func(w *world) { w.again() }),
			"crash": of(func(w *world) {
				w.agent = agent{}
				clear(w.queued)
				for range rapid.IntRange(0, 3).Draw(t, "unseen changes") {
					w.change(rapid.Bool().Draw(t, "create"))
					w.remove()
				}
				w.agent.restart(w)
			}),
			"resume": of(func(w *world) { w.agent.resume(w) }),
			"snapshot": of(func(w *world) {
				w.agent.snapshot(w,
					rapid.SampledFrom([]string{"pods/a,b", "pods/c", "pods/a", "pods/b"}).Draw(t, "scope"))
			}),
			"reform":   of(func(w *world) { w.reform(rapid.SampledFrom(scopes).Draw(t, "scope")) }),
			"progress": of(func(w *world) { w.drawRun().progress(w) }),
			"begin":    of(func(w *world) { w.drawRun().begin(w, rapid.SampledFrom(scopes).Draw(t, "scope")) }),
			"end":      of(func(w *world) { w.drawRun().end(w, rapid.SampledFrom(scopes).Draw(t, "scope")) }),
			"run":      of(func(w *world) { w.startRun(rapid.IntRange(0, 1).Draw(t, "writer")) }),
			"former":   of(func(w *world) { w.deliver(w.formerProgress()) }),
			"late":     of(func(w *world) { w.deliverHeld() }),
			"backup":   of(func(w *world) { w.backup, w.backupRV = maps.Clone(w.truth), w.rv }),
			"restore":  of(func(w *world) { w.restore(rapid.Bool().Draw(t, "crash")) }),
			"save": func(t *rapid.T) {
				saved, err := json.Marshal(read.tracker)
				if err != nil {
					t.Fatal(err)
				}
				read.tracker = &consume.Tracker{Forget: time.Hour}
				if err := json.Unmarshal(saved, read.tracker); err != nil {
					t.Fatal(err)
				}
			},
		})
		for _, w := range worlds {
			w.agent = agent{}
			clear(w.queued)
			w.agent.restart(w)
			for len(w.agent.snapshots) > 0 {
				w.agent.work(w)
				w.flush()
			}
			want := slices.SortedFunc(maps.Values(w.objects()), byName)
			if diff := gocmp.Diff(want, w.known()); diff != "" {
				t.Fatalf("after a snapshot of all: -there is +known\n%s", diff)
			}
		}
	})
}

// reading is the reader of the stream of all worlds.
type reading struct{ tracker *consume.Tracker }

func newWorld(t *rapid.T, read *reading, clusterUID, group string) *world {
	w := &world{
		t:          t,
		read:       read,
		clusterUID: clusterUID,
		group:      group,
		truth:      map[string]thing{},
		queued:     map[string][]*consume.Event{},
		model:      &model{highest: map[string]version{}, alive: map[string]consume.Object{}, swept: map[string]bool{}},
	}
	w.runs[0], w.runs[1] = newRun("a"+group), newRun("b"+group)
	w.agent.restart(w)
	return w
}

// known returns the objects of this world that the Tracker has, by name.
func (w *world) known() []consume.Object {
	var all []consume.Object
	for o := range w.read.tracker.All() {
		if o.ClusterUID == w.clusterUID && o.Resource == w.event().GroupResource() {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, byName)
	return all
}

// event returns the attributes that all events of the world have.
func (w *world) event() *consume.Event {
	return &consume.Event{
		Source:     "/kubernetes/x",
		ClusterUID: w.clusterUID,
		APIVersion: path.Join(w.group, "v1"),
		Resource:   "pods",
	}
}

// objectOf returns the object of an event.
func objectOf(e *consume.Event) consume.Object {
	return consume.Object{
		Source:     e.Source,
		ClusterUID: e.ClusterUID,
		Resource:   e.GroupResource(),
		Namespace:  e.Namespace,
		Name:       e.Name,
		UID:        e.UID,
	}
}

// thing is an object of the cluster.
type thing struct {
	uid, namespace, name string
	rv                   uint64
}

type world struct {
	t       *rapid.T
	history int // restores of etcd
	rv      uint64
	uids    int
	ids     int // of snapshots
	reforms int
	truth   map[string]thing // by namespace/name
	agent   agent
	queued  map[string][]*consume.Event // by object: on its way to the bus, each object's in order
	log     []*consume.Event            // the bus
	model   *model
	read    *reading
	runs    [2]*agentRun     // the last run of each writer; the agent is the first
	held    []*consume.Event // of runs, not delivered yet

	clusterUID, group string

	backup   map[string]thing // of etcd
	backupRV uint64
}

// scopes are those of the agent's informers.
var scopes = []string{"pods/a,b", "pods/c"}

// isWhole reports whether a scope is that of an informer, and not a part of one.
func isWhole(scope string) bool { return slices.Contains(scopes, scope) }

// wholeOf returns the scope of the informer that has a part.
func wholeOf(part string) string {
	return scopes[slices.IndexFunc(scopes,
		func(scope string) bool { return within(scope, strings.TrimPrefix(part, "pods/")) })]
}

// within reports whether a namespace belongs to a scope.
func within(scope, namespace string) bool {
	_, namespaces, _ := strings.Cut(scope, "/")
	return strings.Contains(namespaces, namespace)
}

func (w *world) objects() map[string]consume.Object {
	out := map[string]consume.Object{}
	for key, o := range w.truth {
		e := w.event()
		e.Namespace = o.namespace
		e.Name = o.name
		e.UID = o.uid
		out[key] = objectOf(e)
	}
	return out
}

func (w *world) change(create bool) {
	ns := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "namespace")
	name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(w.t, "name")
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

// agent models the visible behavior of the real agent. Its markers are acknowledged before later
// records, live deltas wait for the start of the snapshot, and each object's records leave in
// order.
type agent struct {
	running   bool
	snapshots map[string]*snapshot // under way, by scope
}

type snapshot struct {
	id    string
	rv    uint64
	reads map[string]thing // due
	done  map[string]thing
}

// restart is a start without state.
func (a *agent) restart(w *world) {
	a.running, a.snapshots = true, map[string]*snapshot{}
	w.startRun(0)
	for _, scope := range scopes {
		a.snapshot(w, scope)
	}
}

// snapshot begins a snapshot, unless one of the same scope is in progress.
func (a *agent) snapshot(w *world, scope string) {
	if a.snapshots[scope] != nil || !isWhole(scope) && !w.runs[0].isStarted(w, wholeOf(scope)) {
		return
	}
	w.ids++
	w.rv++
	s := &snapshot{id: fmt.Sprint("S", w.ids), rv: w.rv, reads: map[string]thing{}, done: map[string]thing{}}
	for key, o := range w.truth {
		if within(scope, o.namespace) {
			s.reads[key] = o
		}
	}
	a.snapshots[scope] = s
	if isWhole(scope) {
		w.runs[0].started[scope] = true
	}
	w.deliver(w.marker(consume.TypeSnapshotStarted, scope, s))
}

// resume is a crash after which the agent has its position, but has not recorded everything that it
// has sent since. Queued events are sent, because the API server delivers them again. Snapshots
// resume under their ids and reread some unchanged objects.
func (a *agent) resume(w *world) {
	w.startRun(0)
	for _, scope := range slices.Sorted(maps.Keys(a.snapshots)) {
		s := a.snapshots[scope]
		w.deliver(w.marker(consume.TypeSnapshotStarted, scope, s))
		for _, key := range slices.Sorted(maps.Keys(s.done)) {
			if o := s.done[key]; w.truth[key] == o && rapid.Bool().Draw(w.t, "again") {
				s.reads[key] = o
			}
		}
	}
}

// restore restores etcd from a backup. The agent detects it, at the latest by the versions on the
// bus. It may still send queued events.
func (w *world) restore(crash bool) {
	if w.backup == nil {
		return
	}
	if crash {
		clear(w.queued)
	}
	w.truth, w.rv = maps.Clone(w.backup), w.backupRV
	w.history++
	w.agent = agent{}
	for _, scope := range scopes {
		gap := w.marker(consume.TypeGap, scope, &snapshot{})
		gap.Stream.Reason = consume.ReasonRewound
		w.deliver(gap)
	}
	w.agent.restart(w)
}

// reform is a change of the form of known versions, which the agent announces. A snapshot follows,
// sometimes later.
func (w *world) reform(scope string) {
	if w.reforms == 8 || !w.agent.running || !w.runs[0].isStarted(w, scope) {
		return // a Tracker keeps only the last ids
	}
	w.reforms++
	gap := w.marker(consume.TypeGap, scope, &snapshot{id: fmt.Sprint("F", w.reforms), rv: w.rv})
	gap.Stream.Reason = consume.ReasonContentChanged
	w.deliver(gap)
	if rapid.Bool().Draw(w.t, "snapshot at once") {
		w.agent.snapshot(w, scope)
	}
}

func (w *world) marker(typ consume.EventType, scope string, s *snapshot) *consume.Event {
	e := w.event()
	e.Type, e.Scope = typ, strings.Replace(scope, "pods", e.GroupResource(), 1)
	e.ID, e.Sequence = fmt.Sprint(e.Scope, "/", s.id, typ, w.suffix()), fmt.Sprintf("%020d", s.rv)
	e.Stream = &consume.Stream{Snapshot: s.id}
	if typ == consume.TypeSnapshotStarted {
		e.Stream.Writer, e.Stream.Run = w.runs[0].writer, w.runs[0].String()
	}
	return e
}

// suffix is how ids end.
func (w *world) suffix() string {
	if w.history == 0 {
		return ""
	}
	return fmt.Sprint("/h", w.history)
}

// saw is a live delta. A pending read of the object is sent first.
func (a *agent) saw(w *world, op consume.Op, o thing) {
	if !a.running {
		return
	}
	a.read(w, o.namespace+"/"+o.name)
	w.enqueue(op, o, "")
}

func (a *agent) read(w *world, key string) {
	for _, scope := range slices.Sorted(maps.Keys(a.snapshots)) {
		s := a.snapshots[scope]
		if o, due := s.reads[key]; due {
			delete(s.reads, key)
			s.done[key] = o
			w.enqueue(consume.Read, o, s.id)
		}
	}
}

// work reads an object or completes a snapshot.
func (a *agent) work(w *world) {
	if scopes := slices.Sorted(maps.Keys(a.snapshots)); len(scopes) > 0 {
		scope, s := scopes[0], a.snapshots[scopes[0]]
		if keys := slices.Sorted(maps.Keys(s.reads)); len(keys) > 0 {
			a.read(w, rapid.SampledFrom(keys).Draw(w.t, "read"))
			return
		}
		for _, events := range w.queued {
			if slices.ContainsFunc(events,
				func(e *consume.Event) bool { return e.Op == consume.Read && e.Data.Snapshot == s.id }) {
				return // completed follows the last acknowledged read
			}
		}
		delete(a.snapshots, scope)
		w.deliver(w.marker(consume.TypeSnapshotCompleted, scope, s))
	}
}

func (w *world) enqueue(op consume.Op, o thing, snapshot string) {
	key := o.namespace + "/" + o.name
	e := w.event()
	e.ID, e.Sequence = fmt.Sprint(o.uid, "/", o.rv, "/", op, "/", snapshot, w.suffix()), fmt.Sprintf("%020d", o.rv)
	e.Op = op
	e.Namespace = o.namespace
	e.Name = o.name
	e.UID = o.uid
	e.Data = &consume.Data{Op: op, Snapshot: snapshot}
	w.queued[key] = append(w.queued[key], e)
}

func (w *world) send() {
	keys := slices.Sorted(maps.Keys(w.queued))
	if len(keys) == 0 {
		return
	}
	key := rapid.SampledFrom(keys).Draw(w.t, "send")
	e := w.queued[key][0]
	w.queued[key] = w.queued[key][1:]
	if len(w.queued[key]) == 0 {
		delete(w.queued, key)
	}
	w.deliver(e)
}

func (w *world) flush() {
	for len(w.queued) > 0 {
		w.send()
	}
}

// again delivers a late duplicate of any earlier record, even from before a crash.
func (w *world) again() {
	if len(w.log) > 0 {
		w.deliver(w.log[rapid.IntRange(0, len(w.log)-1).Draw(w.t, "copy of")])
	}
}

func (w *world) deliver(e *consume.Event) {
	w.log = append(w.log, e)
	if e.Time.IsZero() { // else it is a duplicate
		e.Time = noon.Add(time.Duration(len(w.log)) * time.Second)
	}
	got, want := w.read.tracker.Apply(e), w.model.apply(e)
	if diff := gocmp.Diff(want, got); diff != "" {
		for i, e := range w.log {
			w.t.Logf("%d %s %s/%s news: %t", i+1, e.ID, e.Namespace, e.Name, w.model.news[i])
		}
		w.t.Fatalf("record %d, %s: -model +tracker\n%s", len(w.log), e.ID, diff)
	}
	if diff := gocmp.Diff(slices.SortedFunc(maps.Values(w.model.alive), byName), w.known()); diff != "" {
		w.t.Fatalf("record %d, %s: -model +tracker\n%s", len(w.log), e.ID, diff)
	}
	if diff := gocmp.Diff(w.reachedByModel(), w.reached()); diff != "" {
		for i, e := range w.log {
			w.t.Logf("%d %s at %s news: %t", i+1, e.ID, e.Time.Format("04:05.0"), w.model.news[i])
		}
		w.t.Fatalf("record %d, %s: -model +tracker\n%s", len(w.log), e.ID, diff)
	}
}

// version is a history and a sequence, as text that can be compared.
type version string

func versionOf(e *consume.Event) version {
	return version(fmt.Sprintf("%010d %s", e.History(), e.Sequence))
}

// model follows the contract and keeps everything.
type model struct {
	log     []*consume.Event
	news    []bool
	highest map[string]version // by uid
	alive   map[string]consume.Object
	swept   map[string]bool // by uid: not alive, as a snapshot has shown
}

func (m *model) apply(e *consume.Event) consume.Verdict {
	v := consume.Verdict{News: m.isNews(e)}
	m.log, m.news = append(m.log, e), append(m.news, v.News)
	switch {
	case !v.News:
	case e.Type == consume.TypeSnapshotCompleted:
		v.Gone = m.sweep(e)
	case e.Data == nil:
	case e.Op == consume.Deleted:
		delete(m.alive, e.UID)
		delete(m.swept, e.UID)
	default:
		for uid, o := range m.alive { // the name is another's now
			if uid != e.UID && o.Namespace == e.Namespace && o.Name == e.Name {
				v.Gone = append(v.Gone, o)
				delete(m.alive, uid)
				m.highest[uid] = max(m.highest[uid], versionOf(e))
			}
		}
		delete(m.swept, e.UID)
		m.alive[e.UID] = objectOf(e)
	}
	if v.News && e.Data != nil {
		m.highest[e.UID] = versionOf(e)
	}
	return v
}

// isNews reports whether an event is news. A duplicate never is. An event of a known object is news
// if its version is above all earlier ones. An event of an unknown object is news if it is above
// the snapshots that showed the object to be gone.
func (m *model) isNews(e *consume.Event) bool {
	if slices.ContainsFunc(m.log, func(o *consume.Event) bool { return o.ID == e.ID }) || e.IsFormerProgress() {
		return false
	}
	switch e.Type {
	case consume.TypeProgress, consume.TypeScopeStarted, consume.TypeScopeEnded:
		return m.isNewsOfRun(e)
	case consume.TypeSnapshotStarted, consume.TypeSnapshotCompleted, consume.TypeGap:
	}
	if e.Stream != nil {
		return true
	}
	reading := ""
	if e.Op == consume.Read {
		reading = m.reading(e)
	}
	if highest, known := m.highest[e.UID]; known && versionOf(e) <= highest {
		if versionOf(e) == highest && reading != "" && m.isReformed(e, reading) {
			return true
		}
		if versionOf(e) < highest || !m.swept[e.UID] || reading == "" {
			return false // else a sweep was wrong: it is still there, as it was
		}
	}
	if _, alive := m.alive[e.UID]; alive {
		return true
	}
	for _, o := range m.alive {
		if o.Namespace == e.Namespace && o.Name == e.Name && versionOf(e) < m.highest[o.UID] {
			return false // the name has been another's since
		}
	}
	return !slices.ContainsFunc(m.log, func(o *consume.Event) bool {
		return o.Type == consume.TypeSnapshotCompleted && o.Scope != reading && within(o.Scope, e.Namespace) &&
			versionOf(e) <= versionOf(o)
	})
}

// isReformed reports whether a read shows a known object in another form, as a gap has said. The
// read is the first one of a snapshot that started after the gap, and no such snapshot of the gap's
// scope is complete.
func (m *model) isReformed(e *consume.Event, reading string) bool {
	if _, alive := m.alive[e.UID]; !alive {
		return false
	}
	start := m.start(reading, e.Data.Snapshot)
	if m.touched(start, reading)[e.UID] {
		return false
	}
	for i, gap := range m.log[:start] {
		isReform := m.news[i] && gap.Type == consume.TypeGap && gap.Stream.Reason == consume.ReasonContentChanged
		if !isReform || gap.Scope != reading && !consume.IsPartOf(reading, gap.Scope) {
			continue
		}
		isOver := false
		for k, o := range m.log[i:] {
			isOver = isOver ||
				m.news[i+k] && o.Type == consume.TypeSnapshotCompleted && o.Scope == gap.Scope &&
					m.start(o.Scope, o.Stream.Snapshot) > i
		}
		if !isOver {
			return true
		}
	}
	return false
}

// start returns the index of the start of a snapshot.
func (m *model) start(scope, snapshot string) int {
	return slices.IndexFunc(m.log, func(e *consume.Event) bool {
		return e.Type == consume.TypeSnapshotStarted && e.Scope == scope && e.Stream.Snapshot == snapshot
	})
}

// touched returns the uids that were read or changed since a snapshot of a scope was started.
func (m *model) touched(start int, scope string) map[string]bool {
	touched, later := map[string]bool{}, map[string]bool{}
	began := versionOf(m.log[start])
	for i, e := range m.log[start:] {
		if e.Type == consume.TypeSnapshotStarted {
			later[e.Stream.Snapshot] = later[e.Stream.Snapshot] || m.news[start+i]
		}
		if e.Data != nil && within(scope, e.Namespace) && (e.Op == consume.Read && later[e.Data.Snapshot] ||
			e.Op != consume.Read && m.news[start+i] && versionOf(e) > began) {
			touched[e.UID] = true
		}
	}
	return touched
}

// reading is the scope of the snapshot that a read belongs to, while that snapshot is in progress.
func (m *model) reading(e *consume.Event) (scope string) {
	underWay := map[string]string{}
	for i, o := range m.log {
		switch {
		case o.Type == consume.TypeSnapshotStarted && m.news[i]:
			underWay[o.Scope] = o.Stream.Snapshot
		case o.Type == consume.TypeSnapshotCompleted && underWay[o.Scope] == o.Stream.Snapshot:
			delete(underWay, o.Scope)
		}
	}
	for s, id := range underWay {
		if e.Data.Snapshot == id {
			scope = s
		}
	}
	return scope
}

// sweep returns the objects of the scope that were neither read nor changed since the snapshot was
// taken. A read by a later snapshot counts too.
func (m *model) sweep(completed *consume.Event) []consume.Object {
	touched := m.touched(m.start(completed.Scope, completed.Stream.Snapshot), completed.Scope)
	var gone []consume.Object
	for uid, o := range m.alive {
		if within(completed.Scope, o.Namespace) && !touched[uid] {
			gone = append(gone, o)
			delete(m.alive, uid)
			m.swept[uid] = true
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
