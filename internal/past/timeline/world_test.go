package timeline_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	source   = "/kubernetes/x"
	plain    = "pods/a,b"
	labelled = "pods/c?labelSelector=app=x" // of namespace c only objects with the label are captured
)

func scopeOf(namespace string) string {
	if namespace == "c" {
		return labelled
	}
	return plain
}

// thing is a version of an object.
type thing struct {
	uid, namespace, name string
	rv                   uint64
	label, noise, gone   bool // noise: filters withhold it, if it is an update
}

func (o thing) key() string    { return o.namespace + "/" + o.name }
func (o thing) selected() bool { return o.uid != "" && !o.gone && (o.namespace != "c" || o.label) }

// json returns the object in a form. The agent redacts a value of each third version.
func (o thing) json(form int) json.RawMessage {
	value := "plain"
	if o.rv%3 == 0 {
		value = "hmac-sha256:k1:c2FtZQ"
	}
	return fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"},"data":{"key":%q,"form":%d}}`,
		o.name, o.uid, o.rv, value, form)
}

// revision is a revision of etcd.
type revision struct {
	thing
	time time.Time
}

// point is a position in the history of etcd, and in time.
type point struct {
	history uint32
	rv      uint64
	time    time.Time
}

func (p point) before(q point) bool {
	return p.history < q.history || p.history == q.history && p.rv < q.rv
}

// world simulates a cluster, an agent and a record, and has the true history. The etcd is restored
// at times. The agent is killed, loses the bus, and finds history gone. Late copies reach the
// record.
type world struct {
	t      *rapid.T
	clock  time.Time
	rv     uint64
	ids    int
	etcd   [][]revision // by history; the first ones of a history come from the backup
	began  []time.Time  // by history
	backup int          // number of revisions in the backup of this history; 0: no backup
	agent  map[string]*informer
	alive  bool
	cut    bool      // the agent has no bus
	run    string    // of the agent
	number int       // of the run's last progress
	next   time.Time // of the next progress
	log    []*consume.Event
}

// informer is the agent's part for one scope.
type informer struct {
	scope    string
	queue    []queued // in the order of observation
	acked    uint64   // position of a restart: the bus has everything up to it
	observed uint64
	withheld map[string]int
	blind    bool      // its watch delivers nothing
	snapshot *snapshot // under way
	seen     time.Time // the bus has everything from before
	saved    point     // acked and seen as the checkpoint may have them: those before the last progress
	said     point     // at the last progress
	due      bool      // a snapshot has to follow a gap
	initial  bool      // it began without a position, and has no complete snapshot

	first, reached point     // the first snapshot; the last progress or completed snapshot
	firstBegan     time.Time // when the first snapshot began
	gaps           []*gap
	form           int     // in which the API server serves the objects
	reforms        []point // where each form but the last one was known last
	letters        []letter
	observer
}

type queued struct {
	e      *consume.Event
	o, was thing
	after  uint64 // acked does not pass it while the event is queued
}

type snapshot struct {
	id    string
	rv    uint64
	reads []thing
	lost  bool // it follows a loss of history, and progress waits for it
	gaps  int  // before it
	began time.Time
}

// gap is a gap that the agent announced. From right on, the state is correct again.
type gap struct {
	from, to, right point
	recovered       bool
	whole           bool // a snapshot follows
	progress        int  // progress events of the run since
	run             string
}

type letter struct {
	uid   string
	at    point
	index int // in the log
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t:     t,
		clock: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		rv:    100,
		etcd:  make([][]revision, 1),
		agent: map[string]*informer{},
	}
	w.began = []time.Time{{}}
	for _, s := range []string{plain, labelled} {
		w.agent[s] = &informer{scope: s, withheld: map[string]int{}}
	}
	return w
}

func (w *world) each(f func(*informer)) { f(w.agent[plain]); f(w.agent[labelled]) }
func (w *world) history() uint32        { return uint32(len(w.etcd) - 1) }
func (w *world) now() point             { return point{w.history(), w.rv, w.clock} }
func (w *world) tick()                  { w.clock = w.clock.Add(time.Millisecond) }
func (w *world) chance(n int, of string) bool {
	return rapid.IntRange(1, n).Draw(w.t, of) == n
}

// objects returns the objects of a scope ("": all) after the revisions of a history for which
// counts returns true.
func (w *world) objects(scope string, history uint32, counts func(revision) bool) map[string]thing {
	out := map[string]thing{}
	for _, r := range w.etcd[history] {
		if scope != "" && scopeOf(r.namespace) != scope || !counts(r) {
			continue
		}
		out[r.key()] = r.thing
		if r.gone {
			delete(out, r.key())
		}
	}
	return out
}

func (w *world) upTo(scope string, rv uint64) map[string]thing {
	return w.objects(scope, w.history(), func(r revision) bool { return r.rv <= rv })
}

// longestCut is the longest time for which an agent has no bus, and a margin.
const longestCut = 26 * time.Minute

// pass lets time pass. A running agent emits progress each minute, if it has a bus.
func (w *world) pass(d time.Duration) {
	for end := w.clock.Add(d); w.clock.Before(end); {
		w.clock = w.clock.Add(min(end.Sub(w.clock), 10*time.Second))
		if !w.alive {
			continue
		}
		w.each(func(i *informer) { i.ack(w) })
		if w.cut || w.clock.Before(w.next) {
			continue
		}
		w.each(func(i *informer) {
			for len(i.queue) > 0 && w.clock.Sub(i.queue[0].e.Time) > 50*time.Second {
				i.sendFirst(w, 0)
			}
		})
		w.progress(false)
	}
}

func (w *world) change(was, o thing) {
	w.rv++
	w.tick()
	o.rv = w.rv
	w.etcd[w.history()] = append(w.etcd[w.history()], revision{o, w.clock})
	if i := w.agent[scopeOf(o.namespace)]; w.alive && !i.blind {
		i.observe(w, was, o)
	}
}

func (w *world) create() {
	o := thing{
		namespace: rapid.SampledFrom([]string{"a", "b", "c", "c"}).Draw(w.t, "namespace"),
		name:      rapid.SampledFrom([]string{"x", "y"}).Draw(w.t, "name"), label: !w.chance(3, "unlabelled"),
	}
	if _, exists := w.upTo("", w.rv)[o.key()]; !exists {
		w.ids++
		o.uid = fmt.Sprint("uid-", w.ids)
		w.change(thing{}, o)
	}
}

func (w *world) alter(remove bool) {
	all := w.upTo("", w.rv)
	if len(all) == 0 {
		return
	}
	was := all[rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(w.t, "object")]
	o := was
	o.gone, o.noise = remove, !remove && o.namespace != "c" && w.chance(4, "noise")
	o.label = o.label != (!remove && o.namespace == "c" && w.chance(3, "relabel"))
	w.change(was, o)
}

func (i *informer) read(w *world, key string) {
	if s := i.snapshot; s != nil {
		if n := slices.IndexFunc(s.reads, func(o thing) bool { return o.key() == key }); n >= 0 {
			o := s.reads[n]
			s.reads = slices.Delete(s.reads, n, n+1)
			i.enqueue(w, consume.Read, thing{}, o, false)
		}
	}
}

func (w *world) marker(typ consume.EventType, scope string, rv uint64, snapshot string) *consume.Event {
	w.tick()
	e := &consume.Event{
		ID:   fmt.Sprintf("%s/%s/%s/%d%s", scope, typ.Name(), snapshot, w.clock.UnixNano(), w.suffix()),
		Type: typ, Source: source, APIVersion: "v1", Kind: "Pod", Resource: "pods", Scope: scope, Time: w.clock,
		Sequence: fmt.Sprintf("%020d", rv), Stream: &consume.Stream{
			Snapshot:        snapshot,
			ResourceVersion: fmt.Sprint(rv),
			Writer:          writer,
			Run:             w.run,
		},
	}
	if scope == plain && (typ == consume.TypeScopeStarted || typ == consume.TypeSnapshotStarted) {
		e.Stream.Rules = []consume.Rule{{Noise: []string{"status-only"}}}
	}
	if snapshot != "" { // a continued snapshot starts again with the same id
		e.ID = fmt.Sprintf("%s/%s/%s%s", scope, snapshot, typ, w.suffix())
	}
	w.log = append(w.log, e)
	return e
}

// again writes a late copy of an event, within the time for which a Tracker keeps deleted objects.
func (w *world) again() {
	e := w.log[rapid.IntRange(0, len(w.log)-1).Draw(w.t, "copy of")]
	if w.clock.Sub(e.Time) < consume.DefaultForget-time.Minute {
		w.log = append(w.log, e)
	}
}

// stop ends the agent in good order, or kills it. Then queued events are lost.
func (w *world) stop() {
	orderly := w.alive && !w.cut && w.chance(3, "in good order")
	if orderly {
		w.each(func(i *informer) {
			for len(i.queue) > 0 {
				i.sendFirst(w, 0)
			}
		})
		w.progress(true)
	}
	w.alive = false
	w.each(func(i *informer) {
		i.queue = nil
		i.ended = i.ended && orderly
		clear(i.withheld)
		if !orderly && w.chance(2, "checkpoint is old") && i.saved.rv > 0 && i.saved.history == w.history() {
			i.acked, i.seen = i.saved.rv, i.saved.time
		}
		i.forget()
	})
}

// start starts the agent. how describes the history since the last stop, such as lost or expired.
func (w *world) start(how string) {
	w.tick()
	w.alive = true
	w.cut = false
	w.run = fmt.Sprintf("0-%d", w.clock.UnixMilli())
	w.number = 0
	w.next = w.clock.Add(time.Minute)
	began := w.clock
	w.each(func(i *informer) {
		how := how
		if w.clock.Sub(i.seen) > consume.DefaultForget-longestCut && how != "lost" {
			// A Tracker must still keep deleted objects when their events are sent again.
			how = "compacted"
		}
		initial := i.first == (point{}) || how == "lost"
		e := w.marker(consume.TypeScopeStarted, i.scope, i.acked, "")
		i.started = e.Time
		e.Stream.Initial, e.Stream.Continued = initial, !initial && how == "history"
		i.resumes = point{w.history(), i.acked, i.seen}
		if initial { // it has no position
			i.resumes = point{}
			e.Stream.ResourceVersion, e.Sequence = "", ""
		}
		from := point{w.history(), i.acked, i.seen}
		switch {
		case i.first == (point{}):
			i.initial = true
			i.begin(w, true)
		case how == "lost": // the bus cannot be asked either
			i.initial = true
			complete := i.reached
			complete.time = latest(i.whole.time, i.to)
			i.gaps = append(i.gaps, &gap{from: complete, to: w.now(), whole: true})
			i.begin(w, true)
		case how == "history":
			i.goOn(w)
			i.replay(w, func(revision) bool { return true })
		case how == "recovered":
			i.announce(w, from, consume.ReasonExpired, true)
			was, is := w.upTo(i.scope, i.acked), w.upTo(i.scope, w.rv)
			i.goOn(w)
			i.replay(w, func(r revision) bool { return was[r.key()].uid == r.uid || is[r.key()].uid == r.uid })
			i.due = true
		case how == "expired":
			i.announce(w, from, consume.ReasonExpired, false)
			i.goOn(w)
			i.infer(w)
			i.due = true
		default:
			i.announce(w, from, consume.ReasonCompacted, false).whole = true
			i.begin(w, true)
		}
		if i.due && w.chance(2, "snapshot begins at once") {
			i.begin(w, true)
		}
		i.ack(w)
		i.interrupted(w, consume.InterruptedStart, began)
	})
}

// restore restores etcd from the backup. The agent detects it.
func (w *world) restore() {
	if w.backup == 0 || !w.alive || w.cut {
		return
	}
	old := w.etcd[w.history()][:w.backup]
	w.backup = 0
	from := map[string]point{}
	w.each(func(i *informer) {
		for len(i.queue) > 0 {
			i.sendFirst(w, 0)
		}
		from[i.scope] = point{w.history(), i.acked, w.clock}
		i.skipped, i.unknown = nil, false
		i.close(w, w.rv)
	})
	w.tick()
	w.etcd = append(w.etcd, slices.Clone(old))
	w.began = append(w.began, w.clock)
	w.rv = old[len(old)-1].rv
	w.each(func(i *informer) {
		i.announce(w, from[i.scope], consume.ReasonRewound, false).whole = true
		i.observed, i.acked = w.rv, w.rv
		i.begin(w, true)
	})
}

// settle lets the agent finish its work, and time pass.
func (w *world) settle() {
	if !w.alive {
		w.start("history")
	}
	w.cut = false
	w.each(func(i *informer) {
		for len(i.queue) > 0 || i.snapshot != nil {
			i.send(w)
		}
	})
	w.pass(3 * time.Minute)
}
