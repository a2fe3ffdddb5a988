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
	// progressAge is the interval of a progress to all topics of its scope, with {namespace} in the template.
	progressAge = time.Hour
	// progressWait is the time that a progress waits for all partitions. Those without it then store it later.
	progressWait = 10 * time.Second
)

// ledger tracks the progress of scopes that a topic does not have yet.
type ledger struct {
	mu sync.Mutex
	// behind has, by source and scope, the version of the topic's last event, until all partitions have a progress at or above it. It is
	// used only with {namespace} in the template: other topics get each progress.
	behind map[string]historyVersion
	// waiting has the partitions that were handed a progress but have not stored it, by source and scope.
	waiting map[string][]*partition
}

type historyVersion struct {
	history uint32
	version uint64
}

func (v historyVersion) compare(o historyVersion) int {
	return cmp.Or(cmp.Compare(v.history, o.history), cmp.Compare(v.version, o.version))
}

func scopeKey(ev *encode.Event, scope string) string { return string(ev.Source) + " " + scope }

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

func (l *ledger) told(ev *encode.Event) {
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
