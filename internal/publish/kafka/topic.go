package kafka

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	// A topic is evicted after topicIdle without an event of an object, and topicRest without any event: stream events bring a topic back
	// for a few minutes.
	topicIdle = time.Hour
	topicRest = 5 * time.Minute

	minBatch        = 16 << 10  // bytes
	largestBatch    = 4 << 20   // bytes, unless one event is larger; a topic may permit more, but brokers also bound requests (socket.request.max.bytes)
	defaultMaxBatch = 1_000_000 // bytes, if the topic's limit cannot be read; Kafka's default is 1,048,588
)

// topic is a topic with events. It is evicted after a long time without use.
type topic struct {
	name       string
	maxBatch   atomic.Int64                 // limit of a batch before compression, in bytes; below ceiling after the broker has refused one
	ceiling    atomic.Int64                 // bytes
	partitions atomic.Pointer[[]*partition] // nil: the topic is not found or checked yet
	running    context.Context              //nolint:containedctx // context of its partitions
	end        context.CancelFunc           // ends running; nil: not started

	// users is the number of its events and broadcasts in flight. It is raised only with Bus.mu held, so 0 with Bus.mu held means unused.
	users   atomic.Int32
	used    atomic.Int64 // last end of an event, in nanoseconds since 1970
	written atomic.Int64 // last arrival of an event of an object, in the same unit; 0: never
	ledger  ledger

	waiting []*publish.Event // wait for partitions, in order of arrival. Guarded by Bus.mu.

	gone   atomic.Bool  // it does not exist, and not just for a moment
	missed atomic.Bool  // a partition did not find it
	absent atomic.Int32 // consecutive looks that did not find it

	missedAt  time.Time // when missed was last seen set; belongs to manage's goroutine
	unchecked int       // failed attempts to read its configuration; belongs to manage's goroutine
}

func (t *topic) bound(n int64) {
	n = min(n, largestBatch)
	t.ceiling.Store(n)
	t.maxBatch.Store(n)
}

// shrink lowers maxBatch after a batch of size bytes was too large.
func (t *topic) shrink(size int64) {
	for {
		was := t.maxBatch.Load()
		if now := max(size/2, minBatch); now >= was || t.maxBatch.CompareAndSwap(was, now) {
			return
		}
	}
}

// grow raises maxBatch again: the limit may have been raised, or one event alone was too large.
func (t *topic) grow() {
	if was, limit := t.maxBatch.Load(), t.ceiling.Load(); was < limit {
		t.maxBatch.CompareAndSwap(was, min(2*was, limit))
	}
}

// isWanted reports whether the topic's metadata is needed: it is ready, or an event waits for it.
func (t *topic) isWanted() bool { return t.users.Load() > 0 || t.partitions.Load() != nil }

func scopeOf(d *object.Delta) string {
	if d.Stream != nil {
		return d.Stream.Scope
	}
	return d.Scope
}

// acquire returns the topic of that name, and requests its lookup. It is not evicted before release. acquire must be called with mu held.
func (b *Bus) acquire(name []byte) *topic {
	t := b.topics[string(name)]
	if t == nil {
		t = &topic{name: string(name), ledger: ledger{behind: map[string]historyVersion{}, waiting: map[string][]*partition{}}}
		t.bound(defaultMaxBatch)
		b.topics[t.name] = t
	}
	if t.users.Add(1) == 1 && t.partitions.Load() == nil {
		b.look.Raise()
	}
	return t
}

func (b *Bus) release(t *topic) {
	t.used.Store(time.Now().UnixNano())
	if t.users.Add(-1) > 0 || t.partitions.Load() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.users.Load() == 0 {
		delete(b.trouble, t.name) // no event waits for it
	}
}

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

// evict drops topics without recent use, until their next event. Only manage, which also starts partitions, calls it.
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
		b.log.Debug("dropped the state of an unused topic", "topic", name)
	}
}
