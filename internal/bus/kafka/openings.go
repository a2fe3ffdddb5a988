package kafka

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/producer"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// openings has what a new topic gets before its first event of an object. With {namespace} in the
// template, the first event of a namespace creates its topic. A reader of this topic alone needs
// the start of the scope and of its last snapshot, which went to the other topics before:
//
//	other topics   scope.started  snapshot.started  read …        snapshot.completed
//	new topic                                        ↑ created
//	               scope.started  snapshot.started  read …        snapshot.completed
//	               └ its openings ───────────────┘
//
// They are of the runs of this process. A topic that was deleted and created again gets none: what
// it had is lost.
//
// Bus.mu guards all of it.
type openings struct {
	scopes map[string]map[string]*opening // by cluster and scope, and by writer
	last   uint64                         // number of the last stream event
	// lastBefore has, by topic, the number of the last stream event that did not go to it. 0: the
	// topic has got its openings, or needs none. A topic that is not in it was not found yet.
	lastBefore map[string]uint64
}

// opening has the stream events of a scope that a new topic gets: its start, the start of its last
// snapshot, and what followed that.
type opening struct {
	cluster, run string
	events       []sent
}

// sent is a stream event that went to all topics of its resource.
type sent struct {
	number   uint64
	resource *object.Resource
	kind     object.StreamKind
	snapshot string
	content  *encode.Event
	key      []byte // of the record, without the partition
	time     int64  // in milliseconds since 1970
}

const (
	// mostSent bounds the events of an opening. A scope with more gaps since its last snapshot has
	// no opening until the next one.
	mostSent = 100
	// mostKnown bounds the topics that are known. Later ones get no openings.
	mostKnown = 100_000
)

func newOpenings() openings {
	return openings{scopes: map[string]map[string]*opening{}, lastBefore: map[string]uint64{}}
}

// note numbers a stream event that is about to go to all topics, and keeps it if a new topic needs
// it. Only starts name their writer.
func (o *openings) note(bc *broadcast) {
	o.last++
	bc.number = o.last
	stream, scope := bc.event.Delta.Stream, scopeKey(bc.event.Event, bc.event.Delta.Stream.Scope)
	e := sent{
		number:   bc.number,
		resource: stream.Resource,
		kind:     stream.Kind,
		snapshot: stream.Snapshot,
		content:  bc.content,
		key:      append(slices.Clone(bc.event.PartitionKey), '/'),
		time:     timeOf(bc.event.Delta),
	}
	if !bc.mayBePartial {
		e.content = clone(bc.event.Event)
	}
	by, run := string(bc.event.Writer), string(bc.event.Run)
	switch stream.Kind {
	case object.ScopeStarted:
		o.dropOtherRuns(clusterKey(bc.event.Event), by, run)
		if o.scopes[scope] == nil {
			o.scopes[scope] = map[string]*opening{}
		}
		if by != "" {
			o.scopes[scope][by] = &opening{cluster: clusterKey(bc.event.Event), run: run, events: []sent{e}}
		}
	case object.ScopeEnded:
		delete(o.scopes, scope)
	case object.SnapshotStarted, object.SnapshotCompleted, object.Gap:
		for writer, of := range o.scopes[scope] {
			if of.includes(&e, writer == by && of.run == run) && !of.add(e) {
				delete(o.scopes[scope], writer)
			}
		}
	}
}

// dropOtherRuns drops the scopes of other runs of a writer. Another process may have observed them
// since.
func (o *openings) dropOtherRuns(cluster, writer, run string) {
	for _, all := range o.scopes {
		if of := all[writer]; of != nil && of.cluster == cluster && of.run != run {
			delete(all, writer)
		}
	}
}

// includes reports whether an event about the scope belongs to this opening. isOfRun: the event
// names the run of the opening. A gap names none, and belongs to all.
func (o *opening) includes(e *sent, isOfRun bool) bool {
	switch e.kind {
	case object.SnapshotStarted:
		return isOfRun
	case object.SnapshotCompleted:
		return slices.ContainsFunc(o.events, func(s sent) bool { return s.snapshot == e.snapshot })
	case object.ScopeStarted, object.ScopeEnded, object.Gap:
	}
	return true
}

// add adds an event after the start of the scope. It reports false if there are too many.
func (o *opening) add(e sent) bool {
	if e.kind == object.SnapshotStarted {
		o.events = o.events[:1]
	}
	o.events = append(o.events, e)
	return len(o.events) <= mostSent
}

// noteTopics notes topics that get the stream event of that number, and all later ones.
func (o *openings) noteTopics(topics []string, number uint64) {
	for _, name := range topics {
		if _, ok := o.lastBefore[name]; !ok && len(o.lastBefore) < mostKnown {
			o.lastBefore[name] = number - 1
		}
	}
}

// take returns what a topic is to get first, in order.
func (o *openings) take(name string, mayHave func(*object.Resource) bool) (events []sent) {
	until, isKnown := o.lastBefore[name]
	switch {
	case isKnown:
	case len(o.lastBefore) >= mostKnown:
		return nil
	default:
		until = o.last
	}
	o.lastBefore[name] = 0
	for _, all := range o.scopes {
		for _, of := range all {
			for _, e := range of.events {
				if e.number <= until && mayHave(e.resource) {
					events = append(events, e)
				}
			}
		}
	}
	slices.SortFunc(events, func(a, b sent) int { return cmp.Compare(a.number, b.number) })
	events = slices.CompactFunc(events, func(a, b sent) bool { return a.number == b.number })
	return events
}

// noteOpening numbers a stream event, once, and keeps it for new topics.
func (b *Bus) noteOpening(bc *broadcast) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bc.number == 0 {
		b.openings.note(bc)
	}
}

// noteTopics notes the topics that get a stream event.
func (b *Bus) noteTopics(names []string, bc *broadcast) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.openings.noteTopics(names, bc.number)
}

// putOpenings gives a new topic its openings, before all other events. It must be called with
// Bus.mu held.
func (b *Bus) putOpenings(t *topic, partitions []*partition) {
	if !b.topicNames.Varies() || t.name == b.deadTopic {
		return
	}
	events := b.openings.take(t.name, func(r *object.Resource) bool { return b.topicNames.Match(t.name, r) })
	bc := &broadcast{waiting: map[*topic]int{}, failed: map[*topic]bool{}}
	for _, e := range events {
		for _, p := range partitions {
			key := strconv.AppendInt(slices.Clone(e.key), int64(p.index), 10)
			r := record{
				Record: producer.Record{
					Event:   e.content,
					Key:     key,
					Time:    e.time,
					Opening: true,
				},
				broadcast: bc, optional: b.cfg.Create == nil,
			}
			if p.inbox.Put(r) {
				t.users.Add(1)
				bc.waiting[t]++
			}
		}
	}
}
