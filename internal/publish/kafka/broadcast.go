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

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/kafka/producer"
)

// broadcast is a stream event in flight to every partition of every topic for objects of its
// resource. It is acknowledged when all partitions have stored it.
//
// After broadcastWait, a progress or a scope.started is acknowledged if one partition has stored
// it. The others, for example without a leader, keep it in their queues, before all later events.
// So a progress never covers events after it, and no event of a scope precedes the scope's start in
// its partition. Such a queue gets no second progress of the scope. The ledger of the topic still
// lists the scope, so a later progress goes there too.
//
// The goroutine of spread owns it, except for the fields guarded by Bus.mu.
type broadcast struct {
	event        *publish.Event
	content      *encode.Event // the event for the partitions; if mayBePartial, a copy, since it may be sent after Done
	scope        string        // see scopeKey
	progress     bool
	mayBePartial bool // it may be acknowledged before all partitions have stored it

	chosen     bool // its topics are chosen
	optional   bool // a topic that is deleted first does not need the event
	everywhere bool // a progress that goes to all topics of its scope
	first      bool // the first progress of its scope, or the start of a scope: no event may precede it
	started    time.Time
	topics     []*topic        // written with Bus.mu held
	unready    []*topic        // of these: topics with unknown partitions
	missed     map[*topic]bool // of these: topics with a partition that still has an earlier progress

	waiting map[*topic]int // partitions that have not stored it, by topic. Bus.mu guards this field and the next two.
	taken   bool           // a partition has stored it
	err     error          // of the first partition that failed
}

func (b *Bus) startBroadcast(e *publish.Event) {
	s := &broadcast{event: e, content: e.Event, scope: scopeKey(e.Event, e.Delta.Stream.Scope), progress: e.Delta.Stream.Kind == object.Progress}
	starts := e.Delta.Stream.Kind == object.ScopeStarted
	s.mayBePartial, s.first = s.progress || starts, starts
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
	c := &encode.Event{ID: bytes.Clone(ev.ID), ContentType: ev.ContentType, Body: bytes.Clone(ev.Body), Attributes: slices.Clone(ev.Attributes)}
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

// advance takes the possible steps of a broadcast. It reports whether the broadcast has ended, and its error.
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
		return false, nil
	case err != nil:
		return true, err
	case !taken && len(s.missed) == 0: // all topics were deleted meanwhile: choose again
		s.chosen = false
		return false, nil
	}
	b.recordProgress(s)
	return true, nil
}

// mayLeave reports whether a broadcast may end before all partitions have stored it. answered: one has stored or refused it.
func (s *broadcast) mayLeave(answered bool) bool {
	return s.mayBePartial && time.Since(s.started) >= broadcastWait && (answered || len(s.missed) > 0) && (!s.first || len(s.unready) == 0)
}

// recordProgress records the topics that have a progress in all of their partitions.
func (b *Bus) recordProgress(s *broadcast) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range s.topics {
		if s.progress && s.waiting[t] == 0 && !s.missed[t] && !slices.Contains(s.unready, t) {
			t.ledger.storedProgress(s.event.Event)
		}
	}
	if s.everywhere {
		b.progress[s.scope] = s.started
	}
}

// choose sets the topics of a broadcast. It does nothing if the topics of the cluster must be listed first. An error refuses the event.
func (b *Bus) choose(s *broadcast) error {
	names, optional, ok, err := b.streamTopics(s.event)
	if err != nil || !ok {
		return err
	}
	if s.progress {
		names, s.everywhere, s.first = b.progressTopics(s.event, names)
	}
	s.chosen, s.optional, s.started = true, optional, time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	s.topics, s.missed, s.waiting = make([]*topic, len(names)), map[*topic]bool{}, map[*topic]int{}
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

// toPartitions hands a broadcast to the partitions of a topic. It reports false if these are still unknown.
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
		if s.progress && !t.ledger.begin(s.scope, p) {
			s.missed[t] = true
			continue
		}
		b.mu.Lock()
		t.users.Add(1)
		s.waiting[t]++
		b.mu.Unlock()
		key := append(slices.Clone(s.event.PartitionKey), '/')
		r := record{
			Record:    producer.Record{Event: s.content, Key: strconv.AppendInt(key, int64(p.index), 10), Time: timeOf(s.event.Delta)},
			broadcast: s, alone: s.event.Alone, optional: s.optional,
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
	b.mu.Lock()
	if s.waiting[p.topic]--; s.waiting[p.topic] == 0 {
		delete(s.waiting, p.topic)
	}
	if err == nil {
		s.taken = true
	} else if s.err == nil && !errors.Is(err, errTopicGone) {
		s.err = err
	}
	b.mu.Unlock()
	if s.progress {
		p.topic.ledger.ended(s.scope, p)
	}
	b.release(p.topic)
	b.moved.Raise()
}

// streamTopics returns the topics for objects of the event's resource. They include the topic of cluster-scoped objects only if it, or no
// topic at all, exists. optional: a topic that is deleted meanwhile does not need the event. ok is false if topics must be listed first.
func (b *Bus) streamTopics(e *publish.Event) (names []string, optional, ok bool, err error) {
	own := b.topicNames.Append(nil, e.Delta)
	if len(own) > maxTopic {
		return nil, false, false, errTopicName(e, own)
	}
	if !b.topicNames.Varies() {
		return []string{string(own)}, false, true, nil
	}
	all, ok := b.topicList()
	if !ok {
		return nil, false, false, nil
	}
	for _, name := range all {
		if b.topicNames.Match(name, e.Delta.Stream.Resource) {
			names = append(names, name)
		}
	}
	for _, t := range b.wanted() { // add topics created since the list, without deleted ones
		if !slices.Contains(names, t.name) && t.partitions.Load() != nil && !t.gone.Load() && b.topicNames.Match(t.name, e.Delta.Stream.Resource) {
			names = append(names, t.name)
		}
	}
	if len(names) == 0 {
		return []string{string(own)}, false, true, nil
	}
	return names, b.cfg.Create == nil, true, nil // if Create is set, a missing topic is created again
}

const (
	// progressAge is the interval of a progress to all topics of its scope, with {namespace} in the template.
	progressAge = time.Hour
	// broadcastWait is the time that a progress or a scope.started waits for all partitions. Those
	// without it then store it later.
	broadcastWait = 10 * time.Second
)

// ledger tracks the progress of scopes that a topic does not have yet.
type ledger struct {
	mu sync.Mutex
	// behind has, by cluster and scope, the version of the topic's last event, until all partitions
	// have a progress at or above it. It is used only with {namespace} in the template: other
	// topics get each progress.
	behind map[string]historyVersion
	// waiting has the partitions that were handed a progress but have not stored it, by cluster and
	// scope.
	waiting map[string][]*partition
}

type historyVersion struct {
	history uint32
	version uint64
}

func (v historyVersion) compare(o historyVersion) int {
	return cmp.Or(cmp.Compare(v.history, o.history), cmp.Compare(v.version, o.version))
}

func scopeKey(ev *encode.Event, scope string) string {
	return string(ev.Source) + " " + string(ev.ClusterUID) + " " + scope
}

// anyScope is the key for all scopes of a resource, for events without a scope, such as those of a relay.
func anyScope(ev *encode.Event, r *object.Resource) string { return scopeKey(ev, "any "+r.String()) }

// stored records an event of an object before its acknowledgement, since any progress that includes it comes later.
func (l *ledger) stored(ev *encode.Event) {
	d := ev.Delta
	key, at := scopeKey(ev, d.Scope), historyVersion{d.History, d.ResourceVersion}
	if d.Scope == "" {
		key = anyScope(ev, d.Ref.Resource)
	}
	if d.Scope == "" || d.ResourceVersion == 0 { // no progress can be compared with it
		at = historyVersion{math.MaxUint32, math.MaxUint64}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.behind[key]; ok && before.compare(at) >= 0 {
		return
	}
	l.behind[key] = at
}

// isBehind reports whether the topic has an event of the scope that no progress in it includes.
func (l *ledger) isBehind(ev *encode.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, one := l.behind[scopeKey(ev, ev.Delta.Stream.Scope)]
	_, any := l.behind[anyScope(ev, ev.Delta.Stream.Resource)]
	return one || any
}

func (l *ledger) storedProgress(ev *encode.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, at := scopeKey(ev, ev.Delta.Stream.Scope), historyVersion{ev.Delta.Stream.History, ev.Delta.Stream.ResourceVersion}
	if v, ok := l.behind[key]; ok && v.compare(at) <= 0 {
		delete(l.behind, key)
	}
}

// begin records that a partition is handed a progress. It reports false if the partition has not stored an earlier one.
func (l *ledger) begin(scope string, p *partition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.waiting[scope], p) {
		return false
	}
	l.waiting[scope] = append(l.waiting[scope], p)
	return true
}

func (l *ledger) ended(scope string, p *partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[scope] = slices.DeleteFunc(l.waiting[scope], func(o *partition) bool { return o == p })
	if len(l.waiting[scope]) == 0 {
		delete(l.waiting, scope)
	}
}

// progressTopics selects the topics for a progress from names, the topics of a resource. If objects go to topics of their namespaces:
//
//   - all topics of the scope once an hour, and the first time;
//   - otherwise the topics with an event that no progress in them includes, and at least one: that of cluster-scoped objects if it
//     exists, or the first by name.
//
// It reports whether these are all, and whether it is the first time.
func (b *Bus) progressTopics(e *publish.Event, names []string) (chosen []string, all, first bool) {
	if !b.topicNames.Varies() {
		return names, false, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.progress[scopeKey(e.Event, e.Delta.Stream.Scope)]
	if !ok || time.Since(at) >= progressAge {
		return names, true, !ok
	}
	home := string(b.topicNames.Append(nil, e.Delta))
	if !slices.Contains(names, home) {
		home = slices.Min(names)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		t := b.topics[name]
		return name != home && (t == nil || !t.ledger.isBehind(e.Event))
	}), false, false
}
