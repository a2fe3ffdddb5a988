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
// partition. Such a queue gets no second report of the writer. The ledger of the topic still lists
// the scopes, so a later one goes there too. If all queues of a report have an earlier one, it is
// acknowledged at once.
//
// The goroutine of spread owns it, except for the fields guarded by Bus.mu.
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
	topics   []*topic        // written with Bus.mu held
	unready  []*topic        // of these: topics with unknown partitions
	missed   map[*topic]bool // of these: topics with a partition that still has an earlier report

	// partitions that have not stored it, by topic. Bus.mu guards this field and the next three.
	waiting map[*topic]int
	failed  map[*topic]bool // topics with a partition that has refused it
	taken   bool            // a partition has stored it
	err     error           // of the first partition that failed
}

func (b *Bus) startBroadcast(e *publish.Event) {
	s := &broadcast{event: e, content: e.Event}
	if stream := e.Delta.Stream; stream != nil {
		s.begins = stream.Kind == object.ScopeStarted
	} else {
		s.report = newReport(e)
	}
	s.mayBePartial = s.report != nil || s.begins
	if s.mayBePartial {
		s.content = clone(e.Event)
	}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.broadcasts = append(b.broadcasts, s)
	}
	b.mu.Unlock()
	if closed {
		e.Done(publish.ErrClosed)
		return
	}
	b.moved.Raise()
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

// spread advances broadcasts until ctx ends. shutdown ends the rest.
func (b *Bus) spread(ctx context.Context) error {
	look := time.NewTicker(topicPause)
	defer look.Stop()
	for {
		b.mu.Lock()
		all := slices.Clone(b.broadcasts)
		b.mu.Unlock()
		for _, s := range all {
			if ended, err := b.advance(s); ended {
				b.mu.Lock()
				b.broadcasts = slices.DeleteFunc(b.broadcasts, func(o *broadcast) bool { return o == s })
				b.mu.Unlock()
				for _, t := range s.unready {
					b.release(t)
				}
				s.event.Done(err)
			}
		}
		tick := look.C
		if len(all) == 0 {
			tick = nil
		}
		select {
		case <-b.moved:
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

// advance takes the possible steps of a broadcast. It reports whether the broadcast has ended, and
// its error.
func (b *Bus) advance(s *broadcast) (ended bool, err error) {
	if !s.chosen {
		if err := b.choose(s); err != nil {
			return true, err
		}
		if !s.chosen {
			return false, nil
		}
	}
	s.unready = slices.DeleteFunc(s.unready, func(t *topic) bool { return b.toPartitions(s, t) })
	b.mu.Lock()
	taken, left := s.taken, len(s.waiting)
	err = s.err
	b.mu.Unlock()
	unfinished := left > 0 || len(s.unready) > 0
	switch {
	case unfinished && !s.mayLeave(taken || err != nil):
		if left == 0 && b.giveUpTopics(s) {
			s.chosen = false
		}
		return false, nil
	case err != nil:
		b.recordReport(s) // other topics have it
		return true, err
	case s.report != nil && len(s.topics) == 0: // no topic needs it
		return true, nil
	case !taken && len(s.missed) == 0: // all topics were deleted meanwhile: choose again
		s.chosen = false
		return false, nil
	}
	b.recordReport(s)
	return true, nil
}

// mayLeave reports whether a broadcast may end before all partitions have stored it. answered: one
// has stored or refused it.
func (s *broadcast) mayLeave(answered bool) bool {
	return s.mayBePartial && time.Since(s.started) >= broadcastWait && (answered || len(s.missed) > 0) &&
		(!s.begins || len(s.unready) == 0)
}

// isIn reports whether all partitions of a topic have stored the broadcast. It must be called with
// Bus.mu held.
func (s *broadcast) isIn(t *topic) bool {
	return s.waiting[t] == 0 && !s.failed[t] && !s.missed[t] && !slices.Contains(s.unready, t)
}

// choose sets the topics of a broadcast. It does nothing if the topics of the cluster must be
// listed first. An error refuses the event.
func (b *Bus) choose(s *broadcast) error {
	topicsOf := b.streamTopics
	if s.report != nil {
		topicsOf = b.reportTopics
	}
	names, optional, ok, err := topicsOf(s)
	if err != nil || !ok {
		return err
	}
	s.chosen = true
	s.optional = optional
	s.started = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	s.topics = make([]*topic, len(names))
	s.missed = map[*topic]bool{}
	s.waiting = map[*topic]int{}
	s.failed = map[*topic]bool{}
	for i, name := range names {
		t := b.acquire([]byte(name))
		if optional { // the list is newer than earlier findings that it was absent
			t.absent.Store(0)
			t.gone.Store(false)
		}
		s.topics[i] = t
	}
	s.unready = slices.Clone(s.topics)
	return nil
}

// toPartitions hands a broadcast to the partitions of a topic. It reports false if these are still
// unknown.
func (b *Bus) toPartitions(s *broadcast, t *topic) bool {
	all := t.partitions.Load()
	switch {
	case all == nil && s.optional && t.gone.Load():
		b.release(t)
		return true
	case all == nil:
		return false
	}
	for _, p := range *all {
		if s.report != nil && !t.ledger.begin(s.report.writer, p) {
			s.missed[t] = true
			continue
		}
		b.mu.Lock()
		t.users.Add(1)
		s.waiting[t]++
		b.mu.Unlock()
		key := append(slices.Clone(s.event.PartitionKey), '/')
		r := record{
			Record: producer.Record{
				Event: s.contentFor(t),
				Key:   strconv.AppendInt(key, int64(p.index), 10),
				Time:  timeOf(s.event.Delta),
			},
			broadcast: s,
			alone:     s.event.Alone,
			optional:  s.optional,
		}
		if !p.inbox.Put(r) {
			b.arrived(s, p, publish.ErrClosed)
		}
	}
	b.release(t)
	return true
}

// arrived records the outcome of a broadcast in one partition. The broadcast may have ended.
func (b *Bus) arrived(s *broadcast, p *partition, err error) {
	if s.report != nil {
		// First: spread may choose again as soon as no partition is awaited. It would then find the
		// report itself as an earlier one.
		p.topic.ledger.ended(s.report.writer, p)
	}
	b.mu.Lock()
	s.waiting[p.topic]--
	if s.waiting[p.topic] == 0 {
		delete(s.waiting, p.topic)
	}
	switch {
	case err == nil:
		s.taken = true
	case !errors.Is(err, errTopicGone):
		s.failed[p.topic] = true
		if s.err == nil {
			s.err = err
		}
	}
	b.mu.Unlock()
	isOver := errors.Is(err, errTopicGone) || errors.Is(err, publish.ErrClosed) || errors.Is(err, publish.ErrFenced)
	if s.event == nil && err != nil && !isOver {
		b.log.Error("topic lacks the start of a scope: answers about its objects are unknown until the next snapshot",
			"topic", p.topic.name, "partition", p.index, "err", err)
	}
	b.release(p.topic)
	b.moved.Raise()
}

// contentFor returns the event for the partitions of a topic.
func (s *broadcast) contentFor(t *topic) *encode.Event {
	if s.report != nil && s.report.contents[t.name] != nil { // otherwise the topic gets the whole event
		return s.report.contents[t.name]
	}
	return s.content
}

// streamTopics returns the topics for objects of the event's resource. They include the topic of
// cluster-scoped objects only if it, or no topic at all, exists. optional: a topic that is deleted
// meanwhile does not need the event. ok is false if topics must be listed first.
func (b *Bus) streamTopics(s *broadcast) (names []string, optional, ok bool, err error) {
	e := s.event
	own := b.topicNames.Append(nil, e.Delta)
	if len(own) > kafkaconfig.MaxTopic {
		return nil, false, false, errTopicName(e, own)
	}
	if !b.topicNames.Varies() {
		return []string{string(own)}, false, true, nil
	}
	b.noteOpening(s) // a topic that is created from now on gets it as one of its openings
	all, ok := b.existingTopics()
	if !ok {
		return nil, false, false, nil
	}
	b.findTopics(all, s)
	for _, name := range all {
		if b.topicNames.Match(name, e.Delta.Stream.Resource) {
			names = append(names, name)
		}
	}
	optional = b.cfg.Create == nil // otherwise a missing topic is created again
	if len(names) == 0 {
		names, optional = []string{string(own)}, false
		b.findTopics(names, s)
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
	for _, t := range b.wanted() {
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
	// behind has, by cluster and scope, the version of the topic's last event, until all partitions
	// have a report at or above it. It is used only with {namespace} in the template: other topics
	// get each report.
	behind map[string]lastEvent
	// waiting has the partitions that were handed a report but have not stored it, by cluster and
	// writer.
	waiting map[string][]*partition
	// owed has, by cluster, writer and resource, the reports that go to all topics and are not in
	// all partitions of this one.
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

// stored records an event of an object before its acknowledgement, since any report that includes
// it comes later. An event without a scope, such as that of a relay, is of any scope of its
// resource.
func (l *ledger) stored(ev *encode.Event) {
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

// begin records that a partition is handed a report. It reports false if the partition has not
// stored an earlier one of the writer.
func (l *ledger) begin(writer string, p *partition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.waiting[writer], p) {
		return false
	}
	l.waiting[writer] = append(l.waiting[writer], p)
	return true
}

// ended records that a partition has stored or refused a report.
func (l *ledger) ended(writer string, p *partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[writer] = slices.DeleteFunc(l.waiting[writer], func(o *partition) bool { return o == p })
	if len(l.waiting[writer]) == 0 {
		delete(l.waiting, writer)
	}
}
