package kafka

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	// topicIdle is how long a topic has to be without an event of an object until it is evicted, and topicRest without any
	// event: stream events bring a topic back for a few minutes.
	topicIdle = time.Hour
	topicRest = 5 * time.Minute

	minBatch        = 16 << 10  // bytes
	largestBatch    = 4 << 20   // bytes, whatever the topic takes, unless one event is larger: brokers bound requests too (socket.request.max.bytes)
	defaultMaxBatch = 1_000_000 // bytes, if the topic's bound may not be read; Kafka's default is 1,048,588
)

// topic is one that events go to. It is evicted when it has not been used for long.
type topic struct {
	name       string
	maxBatch   atomic.Int64                 // bytes that a batch may have before compression; less than ceiling after the broker has refused one
	ceiling    atomic.Int64                 // bytes
	partitions atomic.Pointer[[]*partition] // nil: the topic is not found or checked yet
	running    context.Context              //nolint:containedctx // its partitions run until it ends
	end        context.CancelFunc           // ends running; nil: it has not begun

	// users are events and broadcasts on their way to it. Bus.mu is held when it is raised, so with that and no users nobody uses it.
	users   atomic.Int32
	used    atomic.Int64 // when an event ended last, in nanoseconds since 1970
	written atomic.Int64 // when an event of an object came for it last, the same; 0: never
	ledger  ledger

	waiting []*publish.Event // that wait for partitions, in the order of arrival. Bus.mu is held.
	scopes  map[string]int   // of what waits for partitions, with how many there are. Bus.mu is held.

	gone   atomic.Bool  // it is not there, and not just for a moment
	missed atomic.Bool  // a partition has looked for it in vain
	absent atomic.Int32 // how often in a row it was not there

	missedAt  time.Time // when missed was last seen set; of manage's goroutine, as is
	unchecked int       // how often its configuration could not be had
}

// bound says how many bytes a batch of t may have.
func (t *topic) bound(n int64) {
	n = min(n, largestBatch)
	t.ceiling.Store(n)
	t.maxBatch.Store(n)
}

// shrink follows a batch of so many bytes that was too large.
func (t *topic) shrink(size int64) {
	for {
		was := t.maxBatch.Load()
		if now := max(size/2, minBatch); now >= was || t.maxBatch.CompareAndSwap(was, now) {
			return
		}
	}
}

// grow lets batches be larger again: the bound may have been raised, or one event alone was too large.
func (t *topic) grow() {
	if was, limit := t.maxBatch.Load(), t.ceiling.Load(); was < limit {
		t.maxBatch.CompareAndSwap(was, min(2*was, limit))
	}
}

// isWanted reports whether the topic is looked for: it is ready, or an event waits for that.
func (t *topic) isWanted() bool { return t.users.Load() > 0 || t.partitions.Load() != nil }

// await counts what waits for the partitions of t, by scope. Bus.mu is held.
func (t *topic) await(scope string, n int) {
	if t.partitions.Load() != nil {
		return
	}
	if t.scopes == nil {
		t.scopes = map[string]int{}
	}
	if t.scopes[scope] += n; t.scopes[scope] <= 0 {
		delete(t.scopes, scope)
	}
}

// scopeOf is the scope of a delta, of a stream event too.
func scopeOf(d *object.Delta) string {
	if d.Stream != nil {
		return d.Stream.Scope
	}
	return d.Scope
}

// acquire returns the topic of that name, which is looked up and made ready for writing if it is not yet. The caller
// releases it: until then it is not evicted. mu is held.
func (b *Bus) acquire(name []byte) *topic {
	t := b.topics[string(name)]
	if t == nil {
		t = &topic{name: string(name)}
		t.bound(defaultMaxBatch)
		b.topics[t.name] = t
	}
	if t.users.Add(1) == 1 && t.partitions.Load() == nil {
		b.refresh()
	}
	return t
}

// release lets go of a topic.
func (b *Bus) release(t *topic) {
	t.used.Store(time.Now().UnixNano())
	if t.users.Add(-1) > 0 || t.partitions.Load() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.users.Load() == 0 {
		delete(b.trouble, t.name) // nothing waits for it
	}
}

// wanted are the topics that are looked for.
func (b *Bus) wanted() []*topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*topic, 0, len(b.topics))
	for _, t := range b.topics {
		if t.isWanted() {
			all = append(all, t)
		}
	}
	return all
}

// evict forgets topics that have not been used for long, with their partitions, metadata and troubles. The next event brings
// them back. It is called by manage, which starts partitions.
func (b *Bus) evict(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, at := range b.progress {
		if now.Sub(at) > 2*progressAge { // the scope has gone
			delete(b.progress, key)
		}
	}
	for name, t := range b.topics {
		if t.users.Load() > 0 || now.Sub(time.Unix(0, t.used.Load())) < topicRest || now.Sub(time.Unix(0, t.written.Load())) < topicIdle {
			continue
		}
		delete(b.topics, name)
		delete(b.trouble, name)
		delete(b.trouble, aboutShrunk(t))
		b.window.Forget("absent " + name)
		b.window.Forget("shrunk " + name)
		if t.end == nil {
			continue
		}
		for _, p := range *t.partitions.Load() {
			delete(b.trouble, p.about)
		}
		t.end()
		b.log.Debug("topic is not used and forgotten until it is", "topic", name)
	}
}
