package kafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/producer"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// broadcast is a stream event, or the progress of the agent (a report), in flight to every
// partition of every topic for objects of its resource. It is acknowledged when all partitions have
// stored it.
//
// After broadcastWait, a report or a scope.started is acknowledged if one partition has stored it.
// The others, for example without a leader, keep it in their queues, before all later events. So a
// report never covers events after it, and no event of a scope precedes the scope's start in its
// partition. Such a queue gets no second report of the writer: it is skipped. The ledger of the
// topic still lists the scopes, so a later one goes there too. If all queues of a report have an
// earlier one, it is acknowledged at once.
//
// The goroutine of runBroadcasts owns it, except for the fields guarded by Bus.mu.
type broadcast struct {
	event *publish.Event // nil: it is the openings of a topic
	// the event for the partitions; if mayBePartial, a copy, since it may be sent after Done
	content      *encode.Event
	report       *report // nil: it is a stream event
	begins       bool    // it is a scope.started: no event of the scope may precede it
	mayBePartial bool    // it may be acknowledged before all partitions have stored it
	number       uint64  // of a stream event, in openings; 0: it has none

	chosen   bool // its topics are chosen
	optional bool // a topic that is deleted first does not need the event
	started  time.Time
	topics   []*topic        // the chosen ones; written with Bus.mu held
	unready  []*topic        // chosen topics whose partitions are unknown
	skipped  map[*topic]bool // chosen topics with a partition that did not get it: an earlier report waits there

	// waiting has the number of partitions that have not stored it, by topic. Bus.mu guards this
	// field and the next three.
	waiting  map[*topic]int
	failed   map[*topic]bool // topics with a partition that has refused it
	isStored bool            // at least one partition has stored it
	err      error           // of the first partition that failed
}

func (b *Bus) startBroadcast(e *publish.Event) {
	bc := &broadcast{event: e, content: e.Event}
	if stream := e.Delta.Stream; stream != nil {
		bc.begins = stream.Kind == object.ScopeStarted
	} else {
		bc.report = newReport(e)
	}
	bc.mayBePartial = bc.report != nil || bc.begins
	if bc.mayBePartial {
		bc.content = clone(e.Event)
	}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.broadcasts = append(b.broadcasts, bc)
	}
	b.mu.Unlock()
	if closed {
		e.Done(publish.ErrClosed)
		return
	}
	b.broadcastsDue.Raise()
}

func clone(ev *encode.Event) *encode.Event {
	c := &encode.Event{
		ID:          bytes.Clone(ev.ID),
		ContentType: ev.ContentType,
		Body:        bytes.Clone(ev.Body),
		Attributes:  slices.Clone(ev.Attributes),
	}
	for i := range c.Attributes {
		c.Attributes[i].Value = bytes.Clone(c.Attributes[i].Value)
	}
	return c
}

// runBroadcasts advances broadcasts until ctx ends. shutdown ends the rest.
func (b *Bus) runBroadcasts(ctx context.Context) error {
	recheck := time.NewTicker(topicPause)
	defer recheck.Stop()
	for {
		b.mu.Lock()
		all := slices.Clone(b.broadcasts)
		b.mu.Unlock()
		for _, bc := range all {
			if ended, err := b.advance(bc); ended {
				b.mu.Lock()
				b.broadcasts = slices.DeleteFunc(b.broadcasts, func(o *broadcast) bool { return o == bc })
				b.mu.Unlock()
				for _, t := range bc.unready {
					b.release(t)
				}
				bc.event.Done(err)
			}
		}
		recheckDue := recheck.C
		if len(all) == 0 {
			recheckDue = nil
		}
		select {
		case <-b.broadcastsDue:
		case <-recheckDue:
		case <-ctx.Done():
			return nil
		}
	}
}

// advance takes the possible steps of a broadcast. It reports whether the broadcast has ended, and
// its error.
func (b *Bus) advance(bc *broadcast) (ended bool, err error) {
	if !bc.chosen {
		if err := b.chooseTopics(bc); err != nil {
			return true, err
		}
		if !bc.chosen {
			return false, nil
		}
	}
	bc.unready = slices.DeleteFunc(bc.unready, func(t *topic) bool { return b.handToPartitions(bc, t) })
	b.mu.Lock()
	isStored, left := bc.isStored, len(bc.waiting)
	err = bc.err
	b.mu.Unlock()
	unfinished := left > 0 || len(bc.unready) > 0
	switch {
	case unfinished && !bc.mayEndEarly(isStored || err != nil):
		if left == 0 && b.giveUpTopics(bc) {
			bc.chosen = false
		}
		return false, nil
	case err != nil:
		b.noteReport(bc) // other topics have it
		return true, err
	case bc.report != nil && len(bc.topics) == 0: // no topic needs it
		return true, nil
	case !isStored && len(bc.skipped) == 0: // all topics were deleted meanwhile: choose again
		bc.chosen = false
		return false, nil
	}
	b.noteReport(bc)
	return true, nil
}

// mayEndEarly reports whether a broadcast may end before all partitions have stored it. answered:
// one has stored or refused it.
func (bc *broadcast) mayEndEarly(answered bool) bool {
	return bc.mayBePartial && time.Since(bc.started) >= broadcastWait && (answered || len(bc.skipped) > 0) &&
		(!bc.begins || len(bc.unready) == 0)
}

// isStoredBy reports whether all partitions of a topic have stored the broadcast. It must be called
// with Bus.mu held.
func (bc *broadcast) isStoredBy(t *topic) bool {
	return bc.waiting[t] == 0 && !bc.failed[t] && !bc.skipped[t] && !slices.Contains(bc.unready, t)
}

// chooseTopics sets the topics of a broadcast. It does nothing if the topics of the cluster must be
// listed first. An error refuses the event.
func (b *Bus) chooseTopics(bc *broadcast) error {
	topicsOf := b.streamTopics
	if bc.report != nil {
		topicsOf = b.reportTopics
	}
	names, optional, ok, err := topicsOf(bc)
	if err != nil || !ok {
		return err
	}
	bc.chosen = true
	bc.optional = optional
	bc.started = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	bc.topics = make([]*topic, len(names))
	bc.skipped = map[*topic]bool{}
	bc.waiting = map[*topic]int{}
	bc.failed = map[*topic]bool{}
	for i, name := range names {
		t := b.acquire([]byte(name))
		if optional { // the list is newer than earlier findings that it was absent
			t.absent.Store(0)
			t.gone.Store(false)
		}
		bc.topics[i] = t
	}
	bc.unready = slices.Clone(bc.topics)
	return nil
}

// handToPartitions hands a broadcast to the partitions of a topic. It reports false if these are
// still unknown.
func (b *Bus) handToPartitions(bc *broadcast, t *topic) bool {
	all := t.partitions.Load()
	switch {
	case all == nil && bc.optional && t.gone.Load():
		b.release(t)
		return true
	case all == nil:
		return false
	}
	for _, p := range *all {
		if bc.report != nil && !t.ledger.beginReport(bc.report.writer, p) {
			bc.skipped[t] = true
			continue
		}
		b.mu.Lock()
		t.users.Add(1)
		bc.waiting[t]++
		b.mu.Unlock()
		key := append(slices.Clone(bc.event.PartitionKey), '/')
		r := record{
			Record: producer.Record{
				Event: bc.contentFor(t),
				Key:   strconv.AppendInt(key, int64(p.index), 10),
				Time:  timeOf(bc.event.Delta),
			},
			broadcast: bc,
			alone:     bc.event.Alone,
			optional:  bc.optional,
		}
		if !p.inbox.Put(r) {
			b.noteOutcome(bc, p, publish.ErrClosed)
		}
	}
	b.release(t)
	return true
}

// noteOutcome notes the outcome of a broadcast in one partition. The broadcast may have ended.
func (b *Bus) noteOutcome(bc *broadcast, p *partition, err error) {
	if bc.report != nil {
		// First: runBroadcasts may choose again as soon as no partition is awaited. It would then
		// find the report itself as an earlier one.
		p.topic.ledger.endReport(bc.report.writer, p)
	}
	b.mu.Lock()
	bc.waiting[p.topic]--
	if bc.waiting[p.topic] == 0 {
		delete(bc.waiting, p.topic)
	}
	switch {
	case err == nil:
		bc.isStored = true
	case !errors.Is(err, errTopicGone):
		bc.failed[p.topic] = true
		if bc.err == nil {
			bc.err = err
		}
	}
	b.mu.Unlock()
	isOver := errors.Is(err, errTopicGone) || errors.Is(err, publish.ErrClosed) || errors.Is(err, publish.ErrFenced)
	if bc.event == nil && err != nil && !isOver {
		b.log.Error("topic lacks the start of a scope: answers about its objects are unknown until the next snapshot",
			"topic", p.topic.name, "partition", p.index, "err", err)
	}
	b.release(p.topic)
	b.broadcastsDue.Raise()
}

// contentFor returns the event for the partitions of a topic.
func (bc *broadcast) contentFor(t *topic) *encode.Event {
	if bc.report != nil && bc.report.contents[t.name] != nil { // otherwise the topic gets the whole event
		return bc.report.contents[t.name]
	}
	return bc.content
}

// streamTopics returns the topics for objects of the event's resource. They include the topic of
// cluster-scoped objects only if it, or no topic at all, exists. optional: a topic that is deleted
// meanwhile does not need the event. ok is false if topics must be listed first.
func (b *Bus) streamTopics(bc *broadcast) (names []string, optional, ok bool, err error) {
	e := bc.event
	own := b.topicNames.Append(nil, e.Delta)
	if len(own) > kafkaconfig.MaxTopic {
		return nil, false, false, errTopicName(e, own)
	}
	if !b.topicNames.Varies() {
		return []string{string(own)}, false, true, nil
	}
	b.noteOpening(bc) // a topic that is created from now on gets it as one of its openings
	all, ok := b.existingTopics()
	if !ok {
		return nil, false, false, nil
	}
	b.noteTopics(all, bc)
	for _, name := range all {
		if b.topicNames.Match(name, e.Delta.Stream.Resource) {
			names = append(names, name)
		}
	}
	optional = b.cfg.Create == nil // otherwise a missing topic is created again
	if len(names) == 0 {
		names, optional = []string{string(own)}, false
		b.noteTopics(names, bc)
	}
	return names, optional, true, nil
}

// existingTopics returns all topics of the cluster, with those created since they were listed. It
// reports false if they must be listed first.
func (b *Bus) existingTopics() ([]string, bool) {
	listed, ok := b.topicList()
	if !ok {
		return nil, false
	}
	all := slices.Clone(listed)
	known := make(map[string]bool, len(all))
	for _, name := range all {
		known[name] = true
	}
	for _, t := range b.wantedTopics() {
		if !known[t.name] && t.partitions.Load() != nil && !t.gone.Load() {
			all = append(all, t.name)
		}
	}
	return all, true
}

const (
	// reportAge is the interval of reports to all topics of a resource, with {namespace} in the
	// template.
	reportAge = time.Hour
	// broadcastWait is the time that a report or a scope.started waits for all partitions. Those
	// without it then store it later.
	broadcastWait = 10 * time.Second
)

// ledger tracks which reports a topic does not have yet.
type ledger struct {
	mu sync.Mutex
	// behind has the version of the topic's last event, by cluster and scope. An entry is deleted
	// when all partitions have a report at or above that version. It is used only with {namespace}
	// in the template: other topics get each report.
	behind map[string]lastEvent
	// waiting has the partitions that were handed a report but have not stored it, by cluster and
	// writer.
	waiting map[string][]*partition
	// owed is true, by cluster, writer and resource, if the last report to all topics is not in all
	// partitions of this one.
	owed map[string]bool
}

func newLedger() ledger {
	return ledger{behind: map[string]lastEvent{}, waiting: map[string][]*partition{}, owed: map[string]bool{}}
}

// lastEvent is the last event of a scope in a topic.
type lastEvent struct {
	historyVersion
	cluster, resource string
	ofAny             bool // of any scope of the resource: the event has none
}

type historyVersion struct {
	history uint32
	version uint64
}

func (v historyVersion) compare(o historyVersion) int {
	return cmp.Or(cmp.Compare(v.history, o.history), cmp.Compare(v.version, o.version))
}

func scopeKey(ev *encode.Event, scope string) string { return clusterKey(ev) + scope }

func clusterKey(ev *encode.Event) string {
	return string(ev.Source) + " " + string(ev.ClusterUID) + " "
}

// noteEvent notes that the topic has stored an event of an object. It must be called before the
// acknowledgement: a report that includes the event comes only after that. An event without a
// scope, such as that of a relay, is of any scope of its resource.
func (l *ledger) noteEvent(ev *encode.Event) {
	d := ev.Delta
	key, at := scopeKey(ev, d.Scope), historyVersion{d.History, d.ResourceVersion}
	if d.Scope == "" {
		key = scopeKey(ev, "any "+d.Ref.Resource.String())
	}
	if d.Scope == "" || d.ResourceVersion == 0 { // no report can be compared with it
		at = historyVersion{math.MaxUint32, math.MaxUint64}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.behind[key]; ok && before.compare(at) >= 0 {
		return
	}
	l.behind[key] = lastEvent{at, clusterKey(ev), d.Ref.Resource.String(), d.Scope == ""}
}

// beginReport notes that a partition is handed a report. It reports false if the partition has not
// stored an earlier one of the writer.
func (l *ledger) beginReport(writer string, p *partition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.waiting[writer], p) {
		return false
	}
	l.waiting[writer] = append(l.waiting[writer], p)
	return true
}

// endReport notes that a partition has stored or refused a report.
func (l *ledger) endReport(writer string, p *partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[writer] = slices.DeleteFunc(l.waiting[writer], func(o *partition) bool { return o == p })
	if len(l.waiting[writer]) == 0 {
		delete(l.waiting, writer)
	}
}
