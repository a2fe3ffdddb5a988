package record_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// kafkaTopic is a topic of Kafka in memory.
type kafkaTopic struct {
	partitions  []*topicPartition
	appendTimes bool // records have the times at which they are stored, and not those of their events
	read        int  // events

	clocksDiffer bool           // those of agents
	distinct     bool           // agents of one scope give their snapshots different names
	names        map[int]string // of the topics of partitions; none: "topic"
}

type topicPartition struct {
	records []topicRecord
	first   int           // earlier ones were removed
	waiting []topicRecord // there is no leader
	hasNone bool          // no leader
}

type topicRecord struct {
	at     time.Time // the timestamp
	e      *consume.Event
	stored time.Time
}

// put adds an event to a partition. stored is when.
func (k *kafkaTopic) put(p int, stored time.Time, e consume.Event) {
	r := topicRecord{e.Time, &e, stored}
	if k.appendTimes {
		r.at = stored
	}
	if part := k.partitions[p]; part.hasNone {
		part.waiting = append(part.waiting, r)
		return
	}
	k.store(p, r)
}

func (k *kafkaTopic) store(p int, r topicRecord) {
	part := k.partitions[p]
	r.at = r.at.Truncate(time.Millisecond)
	r.e.Position = consume.Position{Log: consume.Log{Name: "topic", Partition: p}, Next: uint64(len(part.records) + 1)}
	part.records = append(part.records, r)
}

// putAll adds an event to all partitions.
func (k *kafkaTopic) putAll(stored time.Time, e consume.Event) {
	for p, part := range k.partitions {
		waits := func(r topicRecord) bool { return r.e.Progress != nil && r.e.Progress.Writer == e.Progress.Writer }
		if e.Progress != nil && slices.ContainsFunc(part.waiting, waits) {
			continue // a partition without a leader gets no second progress
		}
		k.put(p, stored, e)
	}
}

// hasLeaders reports whether all partitions have one.
func (k *kafkaTopic) hasLeaders() bool {
	return !slices.ContainsFunc(k.partitions, func(p *topicPartition) bool { return p.hasNone })
}

// lead gives a partition a leader, or takes it away.
func (k *kafkaTopic) lead(p int, now time.Time, has bool) {
	part := k.partitions[p]
	part.hasNone = !has
	if !has {
		return
	}
	for _, r := range part.waiting {
		r.stored = now
		if k.appendTimes {
			r.at = now
		}
		k.store(p, r)
	}
	part.waiting = nil
}

// all returns the records by time, as far as each partition is in that order.
func (k *kafkaTopic) all() []*consume.Event {
	r := k.reader(consume.Query{Start: consume.Beginning()})
	var out []*consume.Event
	for {
		e, err := r.Next(context.Background())
		if err != nil {
			return out
		}
		out = append(out, e)
	}
}

func (k *kafkaTopic) Traits() consume.Traits { return inSeveral }

func (k *kafkaTopic) Read(_ context.Context, q consume.Query) (consume.Reader, error) {
	if !q.ByTime || !q.StopAtEnd {
		return nil, fmt.Errorf("the query is not by time, or does not stop at the end")
	}
	return k.reader(q), nil
}

func (k *kafkaTopic) reader(q consume.Query) *topicReader {
	r := &topicReader{t: k, copyOf: k.oldest()}
	for p, part := range k.partitions {
		at := part.first
		if since := q.Start.Time(); !since.IsZero() {
			for at < len(part.records) && part.records[at].at.Before(since) {
				at++
			}
		}
		r.at = append(r.at, at)
		r.left = append(r.left, q.OneCopy && p != r.copyOf)
	}
	r.oneCopy = q.OneCopy
	return r
}

// nameOf returns the name of the topic of a partition.
func (k *kafkaTopic) nameOf(p int) string {
	if name := k.names[p]; name != "" {
		return name
	}
	return "topic"
}

// oldest returns the partition with the oldest record.
func (k *kafkaTopic) oldest() int {
	oldest := 0
	var at time.Time
	for p, part := range k.partitions {
		if part.first < len(part.records) && (at.IsZero() || part.records[part.first].stored.Before(at)) {
			oldest, at = p, part.records[part.first].stored
		}
	}
	return oldest
}

type topicReader struct {
	t       *kafkaTopic
	at      []int
	left    []bool
	oneCopy bool
	copyOf  int
}

func (r *topicReader) Next(context.Context) (*consume.Event, error) {
	var first *consume.Event
	for p, part := range r.t.partitions {
		if r.left[p] || r.at[p] >= len(part.records) {
			continue
		}
		if e := part.records[r.at[p]].e; first == nil || e.Time.Before(first.Time) {
			first = e
		}
	}
	if first == nil {
		return nil, io.EOF
	}
	r.at[first.Position.Partition]++
	r.t.read++
	return first, nil
}

func (r *topicReader) Leave(log consume.Log) { r.left[log.Partition] = true }

func (r *topicReader) Positions() []consume.Position {
	var out []consume.Position
	for p := range r.t.partitions {
		if p == r.copyOf || !r.oneCopy {
			out = append(out, consume.Position{Log: consume.Log{
				Name:      r.t.nameOf(p),
				Partition: p,
			}, Next: uint64(r.at[p])})
		}
	}
	return out
}

func (r *topicReader) CaughtUp() bool { return false }
func (r *topicReader) Close() error   { return nil }

func (r *topicReader) Whole(_ context.Context, e *consume.Event) (*consume.Event, error) {
	return e, nil
}

// live is an object of a cluster.
type live struct {
	resource, namespace, name string
	rv                        int
	gone                      bool
}

func (l *live) uid() string { return l.resource + "-" + l.namespace + "-" + l.name }

// scopeAgent is an agent of one scope.
type scopeAgent struct {
	writerOfDay

	t       *kafkaTopic
	scope   string // "pods", "pods/shop", "pods/tools?labelSelector=a=b"
	ns      string // "": all
	every   int    // minutes between snapshots
	missed  []live // changes since it was killed
	killed  int    // the minute
	forever bool   // it does not return

	objects   map[string]live // that it knows
	taken     string          // the snapshot under way
	takenAt   time.Time
	takenRV   int
	unread    []string // objects of that snapshot
	due       int      // the minute of the next snapshot
	lost      bool     // nothing is claimed before a snapshot
	completed time.Time
}

// distinct returns the agent's part of names.
func (a *scopeAgent) distinct() string {
	if a.t.distinct {
		return a.name
	}
	return ""
}

func (a *scopeAgent) has(o *live) bool {
	return o.resource == a.resource && (a.ns == "" || a.ns == o.namespace)
}

func (a *scopeAgent) stream(at time.Time, typ consume.EventType, rv int) consume.Event {
	return consume.Event{
		Time:            at,
		Type:            typ,
		APIVersion:      "v1",
		Kind:            "K",
		Resource:        a.resource,
		Scope:           a.scope,
		Source:          "/kubernetes/x",
		Cluster:         "x",
		ClusterUID:      "c",
		ID:              fmt.Sprint(a.scope, typ, a.distinct(), at.UnixNano()),
		ResourceVersion: fmt.Sprint(rv),
		Sequence:        fmt.Sprintf("%020d", rv),
		Stream:          &consume.Stream{ResourceVersion: fmt.Sprint(rv), Writer: a.name, Run: a.run},
	}
}

// object sends an event of an object.
func (a *scopeAgent) object(at, stored time.Time, op consume.Op, o live) {
	e := consume.Event{
		Time:            at,
		Type:            "dev.kubecdc.object.x",
		APIVersion:      "v1",
		Kind:            "K",
		Resource:        a.resource,
		Source:          "/kubernetes/x",
		Cluster:         "x",
		ClusterUID:      "c",
		Namespace:       o.namespace,
		Name:            o.name,
		UID:             o.uid(),
		Op:              op,
		ResourceVersion: fmt.Sprint(o.rv),
		Sequence:        fmt.Sprintf("%020d", o.rv),
		Data:            &consume.Data{Op: op},
	}
	e.ID = fmt.Sprint(o.uid(), "/", o.rv, op)
	if op == consume.Read {
		e.ID, e.Data.Snapshot = e.ID+a.taken, a.taken
	}
	if op != consume.Deleted {
		e.Data.After = fmt.Appendf(nil, `{"rv":%d}`, o.rv)
	}
	if a.scope != a.resource && a.ns == "tools" {
		e.Scope = a.scope
	}
	p := 0
	for _, c := range o.uid() {
		p = (p*31 + int(c)) % len(a.t.partitions)
	}
	a.t.put(p, stored, e)
}

// change sends a change, or keeps it for the next run.
func (a *scopeAgent) change(now time.Time, o live) {
	switch {
	case !a.has(&o):
	case a.works:
		a.sendChange(now.Add(a.skew), now, o)
	case a.started:
		a.missed = append(a.missed, o)
	}
}

func (a *scopeAgent) sendChange(at, stored time.Time, o live) {
	_, known := a.objects[o.uid()]
	switch {
	case o.gone && known:
		delete(a.objects, o.uid())
		a.object(at, stored, consume.Deleted, o)
	case o.gone:
	case known:
		a.objects[o.uid()] = o
		a.object(at, stored, consume.Updated, o)
	default:
		a.objects[o.uid()] = o
		a.object(at, stored, consume.Created, o)
	}
}

// live begins or ends a run, or changes what it does not see.
func (a *scopeAgent) live(t *rapid.T, c *cluster, m int, now time.Time) {
	at := now.Add(a.skew)
	switch fate := rapid.IntRange(0, 80).Draw(t, "fate"); {
	case a.forever:
		return
	case a.works && fate == 0:
		a.works, a.killed = false, m
		a.forever = rapid.IntRange(0, 3).Draw(t, "for ever") == 0
		if a.forever && rapid.Bool().Draw(t, "forgotten") {
			e := a.stream(at.Add(time.Second), consume.TypeScopeEnded, c.rv)
			e.Stream.End = consume.EndForgotten
			a.t.putAll(now, e)
		}
		return
	case a.works && a.resource == "nodes" && fate == 2 && !a.t.clocksDiffer:
		a.remove(c, at, now)
		return
	case !a.works && fate > 12 && a.started, !a.works && fate > 2 && m > 0 && !a.started:
		return
	case !a.works:
		a.begin(c, m, at, now)
	case fate == 1:
		a.away = append(a.away, consume.Interruption{
			From:  at.Add(-50 * time.Second),
			Until: at.Add(-5 * time.Second),
			Why:   consume.InterruptedCut,
		})
	}
	a.hide(t, at)
}

// remove ends the scope, because its resource was removed. The next run begins a new one.
func (a *scopeAgent) remove(c *cluster, at, stored time.Time) {
	for uid, o := range a.objects {
		c.rv++
		o.rv, o.gone = c.rv, true
		delete(c.objects, uid)
		a.sendChange(at, stored, o)
	}
	e := a.stream(at.Add(time.Second), consume.TypeScopeEnded, c.rv)
	e.Stream.End = consume.EndRemoved
	a.t.putAll(stored, e)
	a.works = false
	a.started = false
	a.taken = ""
	a.missed = nil
	a.completed = time.Time{}
	a.away, a.hidden = nil, nil
}

// begin begins a run.
func (a *scopeAgent) begin(c *cluster, m int, at, stored time.Time) {
	compacted := a.started && m-a.killed > 40
	a.works = true
	a.number = 0
	a.run = fmt.Sprintf("0-%d", at.UnixMilli())
	if compacted {
		gap := a.stream(at, consume.TypeGap, 0)
		gap.Sequence = ""
		gap.ResourceVersion = ""
		gap.Stream.ResourceVersion = ""
		gap.Stream.Writer, gap.Stream.Run = "", ""
		gap.Stream.FromResourceVersion, gap.Stream.ToResourceVersion = fmt.Sprint(a.takenRV), fmt.Sprint(c.rv)
		gap.Stream.Since, gap.Stream.Reason = a.last, consume.ReasonCompacted
		a.t.putAll(stored, gap)
	}
	e := a.stream(at.Add(time.Millisecond), consume.TypeScopeStarted, c.rv)
	e.Stream.Initial, e.Stream.Continued = !a.started, a.started && !compacted
	a.t.putAll(stored, e)
	from := at
	switch {
	case !a.started, compacted:
		a.objects = map[string]live{}
		a.taken = ""
		a.lost = true
		a.due = m
		for uid, o := range c.objects {
			if a.has(&o) {
				a.objects[uid] = o
			}
		}
	default:
		for _, o := range a.missed {
			a.sendChange(at.Add(2*time.Millisecond), stored, o)
		}
		if a.taken != "" { // the snapshot is continued
			e := a.stream(at.Add(3*time.Millisecond), consume.TypeSnapshotStarted, a.takenRV)
			e.ID = a.scope + a.taken + "/started"
			e.Stream.Snapshot = a.taken
			e.Stream.Continued = true
			a.t.putAll(stored, e)
		}
	}
	if a.started {
		from = a.last
	}
	a.started, a.missed = true, nil
	a.away = append(a.away, consume.Interruption{From: from, Until: at.Add(time.Second), Why: consume.InterruptedStart})
}

// snapshot begins a snapshot, sends some of its reads, or completes it.
func (a *scopeAgent) snapshot(t *rapid.T, c *cluster, m int, stored time.Time) {
	at := stored.Add(a.skew)
	if !a.works || !a.t.hasLeaders() {
		return
	}
	if a.taken == "" {
		if m < a.due {
			return
		}
		a.beginSnapshot(c, m, at, stored)
	}
	for n := rapid.IntRange(0, len(a.unread)).Draw(t, "reads"); n > 0; n-- {
		if o, exists := a.objects[a.unread[0]]; exists && o.rv <= a.takenRV {
			a.object(at.Add(time.Second), stored, consume.Read, o)
		}
		a.unread = a.unread[1:]
	}
	if len(a.unread) == 0 && rapid.Bool().Draw(t, "completes") {
		a.completeSnapshot(at, stored)
	}
}

// takeWhole takes a snapshot at once.
func (a *scopeAgent) takeWhole(c *cluster, m int, stored time.Time) {
	at := stored.Add(a.skew)
	a.beginSnapshot(c, m, at, stored)
	for _, uid := range a.unread {
		a.object(at.Add(time.Second), stored, consume.Read, a.objects[uid])
	}
	a.unread = nil
	a.completeSnapshot(at, stored)
}

func (a *scopeAgent) beginSnapshot(c *cluster, m int, at, stored time.Time) {
	a.taken = fmt.Sprint("s", at.UnixNano(), a.distinct())
	a.takenAt = at
	a.takenRV = c.rv
	a.due = m + a.every
	e := a.stream(at, consume.TypeSnapshotStarted, a.takenRV)
	e.ID = a.scope + a.taken + "/started"
	e.Stream.Snapshot = a.taken
	e.Stream.Initial = a.lost && a.completed.IsZero()
	a.t.putAll(stored, e)
	a.unread = nil
	for uid := range a.objects {
		a.unread = append(a.unread, uid)
	}
	slices.Sort(a.unread)
}

func (a *scopeAgent) completeSnapshot(at, stored time.Time) {
	e := a.stream(at.Add(2*time.Second), consume.TypeSnapshotCompleted, a.takenRV)
	e.ID, e.Stream.Snapshot = a.scope+a.taken+"/completed", a.taken
	a.t.putAll(stored, e)
	a.completed = a.takenAt
	a.taken = ""
	a.lost = false
}

// progress sends the progress of the run.
func (a *scopeAgent) progress(c *cluster, stored time.Time) {
	at := stored.Add(a.skew)
	if !a.works {
		return
	}
	w := &a.writerOfDay
	var one storedRecord
	w.report(&one, at, stored, false)
	e := *one.events[0]
	e.ID = fmt.Sprint("progress/", a.name, "/", a.run, "/", a.number)
	e.Source = "/kubernetes/x"
	e.Cluster = "x"
	e.ClusterUID = "c"
	entry := &e.Progress.Scopes[0]
	entry.ResourceVersion, entry.SnapshotBegan = fmt.Sprint(c.rv), a.completed
	for _, part := range a.t.partitions {
		for _, r := range part.waiting { // progress does not pass an event that waits
			if r.e.Data != nil && r.e.Resource == a.resource && r.e.Time.Before(entry.To) {
				entry.To = r.e.Time.Add(-time.Millisecond)
			}
		}
	}
	if a.lost {
		*entry = consume.ScopeProgress{Resource: a.resource, Scope: a.scope, Interruptions: entry.Interruptions}
	}
	w.last = entry.To
	if w.last.IsZero() {
		w.last = at.Add(-time.Second)
	}
	a.t.putAll(stored, e)
}

// cluster is the truth.
type cluster struct {
	rv      int
	objects map[string]live
}

// change changes an object.
func (c *cluster) change(t *rapid.T) live {
	c.rv++
	o := live{
		resource:  rapid.SampledFrom([]string{"pods", "pods", "nodes"}).Draw(t, "resource"),
		namespace: rapid.SampledFrom([]string{"shop", "tools"}).Draw(t, "namespace"),
		name:      rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
		rv:        c.rv,
		gone:      rapid.IntRange(0, 3).Draw(t, "gone") == 0,
	}
	if o.resource == "nodes" {
		o.namespace = ""
	}
	if o.gone {
		delete(c.objects, o.uid())
	} else {
		c.objects[o.uid()] = o
	}
	return o
}
