package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// progressAge is how often a progress goes to all topics of its scope, where topics are many.
	progressAge = time.Hour
	// progressWait is how long a progress waits for all partitions. Those that do not have it then get it when they can.
	progressWait = 10 * time.Second
)

// progressLedger is what a topic does not have yet of the progress of scopes.
type progressLedger struct {
	mu sync.Mutex
	// behind is the last version, by source and scope, of which the topic has an event, until all of its partitions have a
	// progress that is not below. Only where topics are many: a topic of all events gets each progress.
	behind map[string]historyVersion
	// waiting are records of progress that partitions do not have yet, by source and scope.
	waiting map[string][]sent
}

// historyVersion is a resourceVersion in its history.
type historyVersion struct {
	history uint32
	version uint64
}

func (v historyVersion) compare(o historyVersion) int {
	return cmp.Or(cmp.Compare(v.history, o.history), cmp.Compare(v.version, o.version))
}

// scopeKey names a scope of a cluster.
func scopeKey(ev *encode.Event, scope string) string { return string(ev.Source) + " " + scope }

// anyScope names the scopes of a resource in place of one that is not told, as by a relay.
func anyScope(ev *encode.Event, r *object.Resource) string { return scopeKey(ev, "any "+r.String()) }

// stored notes that the topic has an event of an object. The event is acknowledged only after this, so any progress that speaks
// of it comes later.
func (l *progressLedger) stored(ev *encode.Event) {
	d := ev.Delta
	at, key := historyVersion{d.History, d.ResourceVersion}, ""
	switch {
	case d.Scope == "":
		key, at = anyScope(ev, d.Ref.Resource), historyVersion{math.MaxUint32, math.MaxUint64}
	case d.ResourceVersion == 0: // it is no number: no progress can be compared with it
		key, at = scopeKey(ev, d.Scope), historyVersion{math.MaxUint32, math.MaxUint64}
	default:
		key = scopeKey(ev, d.Scope)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.behind[key]; ok && before.compare(at) >= 0 {
		return
	}
	if l.behind == nil {
		l.behind = map[string]historyVersion{}
	}
	l.behind[key] = at
}

// isBehind reports whether the topic has an event of the scope of which no progress speaks that it has.
func (l *progressLedger) isBehind(ev *encode.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, one := l.behind[scopeKey(ev, ev.Delta.Stream.Scope)]
	_, any := l.behind[anyScope(ev, ev.Delta.Stream.Resource)]
	return one || any
}

// told notes that all partitions have a progress.
func (l *progressLedger) told(ev *encode.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, at := scopeKey(ev, ev.Delta.Stream.Scope), historyVersion{ev.Delta.Stream.History, ev.Delta.Stream.ResourceVersion}
	if v, ok := l.behind[key]; ok && v.compare(at) <= 0 {
		delete(l.behind, key)
	}
}

// isWaiting reports whether a partition does not have a progress that it was handed.
func (l *progressLedger) isWaiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range l.waiting {
		if slices.ContainsFunc(all, func(s sent) bool { return len(s.r.done) == 0 }) {
			return true
		}
	}
	return false
}

// settle takes back records of progress that have been stored since, and returns the partitions whose one still waits. An
// error is about one that the bus refuses.
func (l *progressLedger) settle(k *Kafka, ev *encode.Event, mayGo bool) (waiting []*partition, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := scopeKey(ev, ev.Delta.Stream.Scope)
	if len(l.waiting[key]) == 0 {
		return nil, nil
	}
	l.waiting[key] = slices.DeleteFunc(l.waiting[key], func(s sent) bool {
		select {
		case rerr := <-s.r.done:
			k.releaseRecord(s.r)
			if errors.Is(rerr, ErrRefused) && err == nil {
				err = publishError(ev, s.p, rerr)
			}
			return true
		default:
		}
		if mayGo && s.p.topic.gone.Load() {
			s.p.abandon(s.r)
			return true
		}
		waiting = append(waiting, s.p)
		return false
	})
	if len(l.waiting[key]) == 0 {
		delete(l.waiting, key)
	}
	return waiting, err
}

// leave lets a partition have a progress when it can.
func (l *progressLedger) leave(ev *encode.Event, s sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[string][]sent{}
	}
	key := scopeKey(ev, ev.Delta.Stream.Scope)
	l.waiting[key] = append(l.waiting[key], s)
}

// publishProgress publishes a progress to all partitions of the topics that progressTopics says. It returns when all of them
// have it; after progressWait, as soon as one has.
//
// A partition that does not have it by then, one without a leader say, keeps it in its place, before whatever comes for that
// partition later: so a progress never says of a partition what is not there. No second one of the scope is put behind it. What
// the topic is behind with stays noted, so the progress after that goes there too.
func (k *Kafka) publishProgress(ctx context.Context, ev *encode.Event) error {
	for {
		if taken, err := k.publishProgressOnce(ctx, ev); err != nil || taken {
			return err
		}
	}
}

// publishProgressOnce publishes a progress to the topics that there are now. It reports false if all of them were deleted meanwhile.
func (k *Kafka) publishProgressOnce(ctx context.Context, ev *encode.Event) (taken bool, err error) {
	names, mayGo, all, first, err := k.progressTopics(ctx, ev)
	if err != nil {
		return false, fmt.Errorf("publish %s: %w", ev.ID, err)
	}
	topics := k.acquireAll(names)
	defer k.releaseAll(topics)
	started := time.Now()
	// Those that are ready come first: the others may take their time.
	slices.SortStableFunc(topics, func(a, b *topic) int { return cmp.Compare(unready(a), unready(b)) })
	limited, cancel := context.WithTimeout(ctx, progressWait)
	defer cancel()
	round := progressRound{k: k, ev: ev, mayGo: mayGo, missed: map[*topic]bool{}}
	for i, t := range topics {
		within := limited
		if first || i == 0 {
			// Some topic must take it. The first progress of all may announce that events were withheld: no event goes before it.
			within = ctx
		}
		if err := round.enqueue(within, t); err != nil {
			round.abandon()
			return false, err
		}
	}
	if err := round.await(ctx); err != nil {
		round.abandon()
		return false, err
	}
	if !round.taken && len(round.missed) == 0 {
		return false, nil
	}
	for _, t := range topics {
		if !round.missed[t] {
			t.ledger.told(ev)
		}
	}
	if all {
		k.mu.Lock()
		k.progress[scopeKey(ev, ev.Delta.Stream.Scope)] = started
		k.mu.Unlock()
	}
	return true, nil
}

func unready(t *topic) int {
	if t.partitions.Load() == nil {
		return 1
	}
	return 0
}

// progressTopics are those that a progress goes to. Where objects of a resource go to the topics of their namespaces:
//
//   - all topics of the scope once an hour, and first of all;
//   - else the topics with an event of which no progress speaks yet that they have, and always one: that of cluster-scoped
//     objects where it exists, or the first by name.
func (k *Kafka) progressTopics(ctx context.Context, ev *encode.Event) (names []string, mayGo, all, first bool, err error) {
	d := ev.Delta
	names, mayGo, err = k.streamTopics(ctx, d)
	if err != nil || !k.topicNames.Varies() {
		return names, mayGo, false, false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.progress[scopeKey(ev, d.Stream.Scope)]
	if !ok || time.Since(at) >= progressAge {
		return names, mayGo, true, !ok, nil
	}
	home := string(k.topicNames.Append(nil, d))
	if !slices.Contains(names, home) {
		home = slices.Min(names)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		t := k.topics[name]
		return name != home && (t == nil || !t.ledger.isBehind(ev))
	}), mayGo, false, false, nil
}

// progressRound is one progress on its way to its partitions.
type progressRound struct {
	k      *Kafka
	ev     *encode.Event
	mayGo  bool
	sent   []sent
	taken  bool            // a partition has it
	missed map[*topic]bool // not all partitions have it
}

// enqueue hands the progress to the partitions of a topic, but for those that wait for an earlier one. A topic that is not
// ready when limited ends is left out.
func (r *progressRound) enqueue(limited context.Context, t *topic) error {
	partitions, err := r.k.wait(limited, t, scopeOf(r.ev.Delta), r.mayGo)
	switch {
	case errors.Is(err, errTopicGone):
		return nil
	case err != nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		r.missed[t] = true
		return nil
	case err != nil:
		return err
	}
	waiting, err := t.ledger.settle(r.k, r.ev, r.mayGo)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		if slices.Contains(waiting, p) {
			r.missed[t] = true
			continue
		}
		s, err := r.k.enqueueStream(r.ev, p)
		if err != nil {
			return err
		}
		r.sent = append(r.sent, s)
	}
	return nil
}

// await waits until all partitions have the progress, after progressWait for one of them.
func (r *progressRound) await(ctx context.Context) error {
	late := time.NewTimer(progressWait)
	defer late.Stop()
	look := time.NewTicker(topicPause)
	defer look.Stop()
	over := false
	for len(r.sent) > 0 {
		s := r.sent[0]
		select {
		case err := <-s.r.done:
			r.sent = r.sent[1:]
			r.k.releaseRecord(s.r)
			if err != nil {
				return publishError(r.ev, s.p, err)
			}
			r.taken = true
			continue
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			over = true
		case <-look.C:
		}
		r.sent = slices.DeleteFunc(r.sent, func(s sent) bool {
			if !r.mayGo || !s.p.topic.gone.Load() {
				return false
			}
			s.p.abandon(s.r)
			return true
		})
		if !over || len(r.sent) == 0 {
			continue
		}
		// The one that was waited for may be the one that does not get it.
		r.sent = append(r.sent[1:], r.sent[0])
		if r.taken || slices.ContainsFunc(r.sent, func(s sent) bool { return len(s.r.done) > 0 }) {
			for _, s := range r.sent {
				s.p.topic.ledger.leave(r.ev, s)
				r.missed[s.p.topic] = true
			}
			r.sent = nil
		}
	}
	return nil
}

// abandon gives up what is on its way: the caller ends.
func (r *progressRound) abandon() {
	for _, s := range r.sent {
		s.p.abandon(s.r)
	}
}

// forsake gives up the records that wait, because the topic was deleted.
func (l *progressLedger) forsake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range l.waiting {
		for _, s := range all {
			s.p.abandon(s.r)
		}
	}
	l.waiting = nil
}
