package kafka

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	// progressAge is how often a progress goes to all topics of its scope, if topics are many.
	progressAge = time.Hour
	// progressWait is how long a progress waits for all partitions. Those that do not have it then get it when they can.
	progressWait = 10 * time.Second
)

// ledger is which progress of scopes a topic does not have yet.
type ledger struct {
	mu sync.Mutex
	// behind is the last version, by source and scope, of which the topic has an event, until all of its partitions have a
	// progress that is not below. Only where topics are many: a topic of all events gets each progress.
	behind map[string]historyVersion
	// waiting are the partitions that have been handed a progress and have not stored it yet, by source and scope.
	waiting map[string][]*partition
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

// anyScope names all scopes of a resource, for an event that names none, as a relay's.
func anyScope(ev *encode.Event, r *object.Resource) string { return scopeKey(ev, "any "+r.String()) }

// stored notes that the topic has an event of an object. The event is acknowledged only after this, so any progress that includes
// it comes later.
func (l *ledger) stored(ev *encode.Event) {
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

// isBehind reports whether the topic has an event of the scope that no progress in it includes.
func (l *ledger) isBehind(ev *encode.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, one := l.behind[scopeKey(ev, ev.Delta.Stream.Scope)]
	_, any := l.behind[anyScope(ev, ev.Delta.Stream.Resource)]
	return one || any
}

// told notes that all partitions have a progress.
func (l *ledger) told(ev *encode.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, at := scopeKey(ev, ev.Delta.Stream.Scope), historyVersion{ev.Delta.Stream.History, ev.Delta.Stream.ResourceVersion}
	if v, ok := l.behind[key]; ok && v.compare(at) <= 0 {
		delete(l.behind, key)
	}
}

// begin notes that a partition is handed a progress. It reports false if the partition has not stored an earlier one yet.
func (l *ledger) begin(scope string, p *partition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.waiting[scope], p) {
		return false
	}
	if l.waiting == nil {
		l.waiting = map[string][]*partition{}
	}
	l.waiting[scope] = append(l.waiting[scope], p)
	return true
}

// ended notes that a partition has stored a progress, or has given it up.
func (l *ledger) ended(scope string, p *partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[scope] = slices.DeleteFunc(l.waiting[scope], func(o *partition) bool { return o == p })
	if len(l.waiting[scope]) == 0 {
		delete(l.waiting, scope)
	}
}

// progressTopics chooses among names, the topics of a resource, those that a progress goes to. If objects of a resource go to the topics of
// their namespaces:
//
//   - all topics of the scope once an hour, and the first time;
//   - else the topics with an event that no progress in them includes, and always one: that of cluster-scoped
//     objects if it exists, or the first by name.
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
