package timeline_test

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// observe queues the event of a revision for the scope.
func (i *informer) observe(w *world, was, o thing) {
	i.observed = o.rv
	i.read(w, o.key())
	switch {
	case !was.selected() && !o.selected():
	case o.gone:
		i.enqueue(w, consume.Deleted, was, o, false)
	case !o.selected():
		i.enqueue(w, consume.Left, was, o, false)
	case was.uid == o.uid && !was.selected():
		i.enqueue(w, consume.Entered, thing{}, o, false)
	case was.uid != o.uid:
		i.enqueue(w, consume.Created, thing{}, o, false)
	case o.noise:
		i.withheld[o.uid]++
		i.withhold(w, o)
	default:
		i.enqueue(w, consume.Updated, was, o, false)
	}
	i.ack(w)
}

func (i *informer) enqueue(w *world, op consume.Op, was, o thing, inferred bool) {
	e := &consume.Event{
		Type:            consume.TypePrefix + "object.x",
		Source:          source,
		APIVersion:      "v1",
		Kind:            "Pod",
		Resource:        "pods",
		Time:            w.clock,
		Namespace:       o.namespace,
		Name:            o.name,
		UID:             o.uid,
		Op:              op,
		ResourceVersion: fmt.Sprint(o.rv),
		Sequence:        fmt.Sprintf("%020d", o.rv),
		Data:            &consume.Data{Op: op, ResourceVersion: fmt.Sprint(o.rv), Inferred: inferred},
	}
	if i.scope == labelled {
		e.Scope = labelled
	}
	switch op {
	case consume.Read:
		e.Data.Snapshot = i.snapshot.id
		e.ID = fmt.Sprintf("pods/%s/%d/r/%s", o.uid, o.rv, i.snapshot.id)
	case consume.Deleted:
		e.ID = fmt.Sprintf("pods/%s/d", o.uid)
	case consume.Left:
		e.ID = fmt.Sprintf("pods/%s/%d/l", o.uid, o.rv)
	default:
		e.ID = fmt.Sprintf("pods/%s/%d", o.uid, o.rv)
	}
	e.ID += w.suffix()
	if was.uid != "" {
		e.Data.Before, e.Data.PreviousResourceVersion = was.json(i.form), fmt.Sprint(was.rv)
	}
	if op != consume.Deleted && op != consume.Left {
		e.Data.After = o.json(i.form)
	}
	if w.chance(10, "too large") {
		e.Data.Before = nil
		e.Data.After = nil
		e.Data.Truncated = []string{"before", "after"}
		e.DataRef = "nats-obj://large/" + e.ID
	}
	if op != consume.Read {
		e.Data.Skipped = i.withheld[o.uid]
		delete(i.withheld, o.uid)
		i.show(w, o)
	}
	after := o.rv - 1
	if inferred { // a restart repeats all events that follow from a gap, or none
		after = i.acked
	}
	i.queue = append(i.queue, queued{e, o, was, after})
}

func (w *world) suffix() string {
	if w.history() == 0 {
		return ""
	}
	return fmt.Sprint("/h", w.history())
}

// send sends the first event of a random object. If none is queued, it continues the snapshot.
func (i *informer) send(w *world) {
	switch s := i.snapshot; {
	case w.cut || !w.alive:
	case len(i.queue) > 0:
		i.sendFirst(w, rapid.IntRange(0, len(i.queue)-1).Draw(w.t, "send"))
	case s != nil && len(s.reads) > 0:
		i.read(w, s.reads[rapid.IntRange(0, len(s.reads)-1).Draw(w.t, "read")].key())
	case s != nil:
		i.snapshot, i.initial = nil, false
		w.marker(consume.TypeSnapshotCompleted, i.scope, s.rv, s.id)
		i.showAll(w, s)
		i.whole = point{w.history(), s.rv, w.clock}
		if i.first == (point{}) {
			i.firstBegan = s.began
		}
		i.reach(point{w.history(), s.rv, w.clock})
		for _, g := range i.gaps[:s.gaps] {
			if g.right == (point{}) {
				g.right = (point{w.history(), s.rv, w.clock})
				if g.right.before(g.to) {
					g.right.rv = g.to.rv
				}
				g.progress = 2
			}
		}
	}
}

// sendFirst sends the first event of the object that the nth event is about.
func (i *informer) sendFirst(w *world, n int) {
	n = slices.IndexFunc(i.queue, func(q queued) bool { return q.o.key() == i.queue[n].o.key() })
	q := i.queue[n]
	i.queue = slices.Delete(i.queue, n, n+1)
	w.tick()
	if q.e.Op != consume.Read && w.chance(25, "refused") {
		i.refuse(w, q)
	} else {
		w.log = append(w.log, q.e)
	}
	i.ack(w)
}

// refuse writes an event to the dead letters.
func (i *informer) refuse(w *world, q queued) {
	dead := *q.e
	dead.DeadLetterReason = "refused"
	w.log = append(w.log, &dead)
	at := q.e.Time
	e := w.marker(consume.TypeGap, i.scope, q.o.rv, "")
	e.ID = fmt.Sprintf("%s/gap/%d-%d/%s", i.scope, q.was.rv, q.o.rv, q.e.ID)
	e.Time = at
	e.Stream = &consume.Stream{
		FromResourceVersion: fmt.Sprint(q.was.rv),
		ToResourceVersion:   fmt.Sprint(q.o.rv),
		Since:               at,
		Reason:              consume.ReasonDeadLetter,
		DeadLetter:          q.e.ID,
	}
	if q.e.Op != consume.Deleted {
		i.letters = append(i.letters, letter{q.o.uid, point{q.e.History(), q.o.rv, at}, len(w.log) - 1})
	}
}

// ack advances the position from which a restart resumes.
func (i *informer) ack(w *world) {
	i.acked = i.observed
	for _, q := range i.queue {
		if q.e.Op != consume.Read {
			i.acked = min(i.acked, q.after)
		}
	}
	if i.acked == i.observed && !i.blind {
		i.seen = w.clock
	}
}

func (i *informer) reach(at point) {
	if i.first == (point{}) {
		i.first = at
	}
	if !at.before(i.reached) {
		i.reached = at
	}
}

// begin sends the queued events, and then starts a snapshot of the present objects.
func (i *informer) begin(w *world, lost bool) {
	for len(i.queue) > 0 {
		i.sendFirst(w, 0)
	}
	w.rv++ // other resources change too
	w.ids++
	s := &snapshot{id: fmt.Sprint("S", w.ids), rv: w.rv, lost: lost, gaps: len(i.gaps)}
	all := w.upTo(i.scope, w.rv)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if all[key].selected() {
			s.reads = append(s.reads, all[key])
		}
	}
	i.snapshot, i.observed = s, w.rv
	i.ack(w)
	if i.resumes == (point{}) {
		i.resumes = point{w.history(), s.rv, w.clock}
	}
	i.due = false
	i.saved = point{}
	i.said = point{} // the checkpoint is saved before a snapshot begins
	clear(i.withheld)
	started := w.marker(consume.TypeSnapshotStarted, i.scope, s.rv, s.id)
	started.Stream.Initial, s.began = i.initial, started.Time
	for _, g := range i.gaps { // a snapshot that follows so soon may be because of the gap
		if g.progress < 2 {
			g.whole, g.right = true, point{}
		}
	}
}

// goOn continues a snapshot under its id. Later changes are sent as changes.
func (i *informer) goOn(w *world) {
	s := i.snapshot
	if s == nil {
		return
	}
	w.marker(consume.TypeSnapshotStarted, i.scope, s.rv, s.id).Stream.Initial = i.initial
	all, acked := w.upTo(i.scope, s.rv), w.upTo(i.scope, i.acked)
	s.reads = nil
	for _, key := range slices.Sorted(maps.Keys(all)) {
		// The bus has the reads of changed objects, unless the change was withheld.
		if o, now := all[key], acked[key]; o.selected() && o.uid == now.uid && (o == now || now.noise) {
			s.reads = append(s.reads, o)
		}
	}
}

// replay observes the revisions after the acknowledged one.
func (i *informer) replay(w *world, found func(revision) bool) {
	known := w.upTo(i.scope, i.acked)
	from := i.acked
	for _, r := range slices.Clone(w.etcd[w.history()]) {
		if r.rv > from && scopeOf(r.namespace) == i.scope && found(r) {
			w.tick()
			i.observe(w, known[r.key()], r.thing)
			known[r.key()] = r.thing
		}
	}
	i.observed = w.rv
	i.ack(w)
}

// infer compares the acknowledged state with a list.
func (i *informer) infer(w *world) {
	was, is := w.upTo(i.scope, i.acked), w.upTo(i.scope, w.rv)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		a, b := was[key], is[key]
		w.tick()
		if a != b {
			i.read(w, key)
		}
		if a.selected() && a.uid != b.uid || a.selected() && !b.selected() {
			gone := a
			gone.rv = w.rv
			op := consume.Deleted
			if a.uid == b.uid {
				op = consume.Left
			}
			i.enqueue(w, op, a, gone, true)
		}
		switch {
		case !b.selected():
		case a.uid != b.uid:
			i.enqueue(w, consume.Created, thing{}, b, true)
		case !a.selected():
			i.enqueue(w, consume.Entered, thing{}, b, true)
		case a.rv != b.rv:
			i.enqueue(w, consume.Updated, a, b, true)
		}
	}
	i.observed = w.rv
	i.ack(w)
}

// silence interrupts a watch for a while. Then the watch gets the changes that it has missed.
func (w *world) silence(i *informer, meanwhile func()) {
	if !w.alive || w.cut || i.first == (point{}) {
		return
	}
	for len(i.queue) > 0 {
		i.sendFirst(w, 0)
	}
	i.blind, i.away = true, w.clock
	meanwhile()
	i.blind = false
	i.replay(w, func(revision) bool { return true })
	w.tick()
	i.interrupted(w, consume.InterruptedSilent, i.away)
}

// expire loses the history of a watch while the agent runs.
func (w *world) expire(i *informer, recovered bool, lose func()) {
	if !w.alive || i.first == (point{}) || i.snapshot != nil {
		return
	}
	for len(i.queue) > 0 {
		i.sendFirst(w, 0)
	}
	from := point{w.history(), i.acked, w.clock}
	i.blind, i.away = true, w.clock
	lose()
	i.blind = false
	i.interrupted(w, consume.InterruptedListed, i.away)
	i.announce(w, from, consume.ReasonExpired, recovered)
	if recovered {
		was, is := w.upTo(i.scope, i.acked), w.upTo(i.scope, w.rv)
		i.replay(w, func(r revision) bool { return was[r.key()].uid == r.uid || is[r.key()].uid == r.uid })
	} else {
		i.infer(w)
	}
}

// reform makes the API server serve all objects in another form. The agent announces that, and a
// snapshot follows.
func (w *world) reform(i *informer) {
	if !w.alive || w.cut || i.first == (point{}) || i.snapshot != nil {
		return
	}
	for len(i.queue) > 0 {
		i.sendFirst(w, 0)
	}
	from := point{w.history(), i.acked, w.clock}
	w.tick()
	w.rv++
	i.form++
	g := i.announce(w, from, consume.ReasonContentChanged, false)
	g.whole = true
	i.reforms, i.due = append(i.reforms, g.from), true
	if w.chance(2, "snapshot begins at once") {
		i.begin(w, false)
	}
}

func (i *informer) announce(w *world, from point, reason consume.GapReason, recovered bool) *gap {
	e := w.marker(consume.TypeGap, i.scope, w.rv, "")
	e.Stream = &consume.Stream{
		FromResourceVersion: fmt.Sprint(from.rv),
		ToResourceVersion:   fmt.Sprint(w.rv),
		Since:               from.time,
		Reason:              reason,
		Recovered:           recovered,
	}
	i.saved, i.said = point{}, point{}
	from.time = latest(from.time, latest(i.whole.time, i.to))
	if from.before(i.reached) { // the bus is ahead of the agent's position
		from.history, from.rv = i.reached.history, i.reached.rv
	}
	g := &gap{from: from, to: w.now(), recovered: recovered}
	i.gaps = append(i.gaps, g)
	return g
}
