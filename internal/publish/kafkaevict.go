package publish

import "time"

const (
	// topicIdle is how long a topic has to be without an event of an object until it is forgotten, and topicRest without any
	// call: stream events bring a topic back for a few minutes.
	topicIdle = time.Hour
	topicRest = 5 * time.Minute
)

// acquire returns the topic of that name, which is looked up and made ready for writing if it is not yet. The caller
// releases it: until then it is not forgotten.
func (k *Kafka) acquire(name []byte) *topic {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.topics[string(name)]
	if t == nil {
		t = &topic{name: string(name), ready: make(chan struct{})}
		t.bound(defaultMaxBatch)
		k.topics[t.name] = t
		k.refresh()
	}
	t.users.Add(1)
	return t
}

// release lets go of a topic.
func (k *Kafka) release(t *topic) {
	t.used.Store(time.Now().UnixNano())
	if t.users.Add(-1) > 0 || t.partitions.Load() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.users.Load() == 0 {
		delete(k.trouble, t.name) // nobody waits for it
	}
}

func (k *Kafka) acquireAll(names []string) []*topic {
	topics := make([]*topic, len(names))
	for i, name := range names {
		topics[i] = k.acquire([]byte(name))
	}
	return topics
}

func (k *Kafka) releaseAll(topics []*topic) {
	for _, t := range topics {
		k.release(t)
	}
}

// wanted reports whether the topic is looked for: it is ready, or somebody waits for that.
func (t *topic) wanted() bool { return t.users.Load() > 0 || t.partitions.Load() != nil }

func (k *Kafka) wanted() []*topic {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*topic, 0, len(k.topics))
	for _, t := range k.topics {
		if t.wanted() {
			all = append(all, t)
		}
	}
	return all
}

// evict forgets topics that have not been used for long, with their partitions, metadata and troubles. The next event brings
// them back. It is called by manage, which starts partitions.
func (k *Kafka) evict(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, at := range k.progress {
		if now.Sub(at) > 2*progressAge { // the scope has gone
			delete(k.progress, key)
		}
	}
	for name, t := range k.topics {
		if t.users.Load() > 0 || now.Sub(time.Unix(0, t.used.Load())) < topicRest || now.Sub(time.Unix(0, t.written.Load())) < topicIdle ||
			t.ledger.isWaiting() {
			continue
		}
		delete(k.topics, name)
		delete(k.trouble, name)
		delete(k.trouble, aboutShrunk(t))
		k.window.Forget("absent " + name)
		k.window.Forget("shrunk " + name)
		if t.end == nil {
			continue
		}
		for _, p := range *t.partitions.Load() {
			delete(k.trouble, p.about)
		}
		// Nothing is pending but what calls have given up that ended with their context.
		t.end()
		k.log.Debug("topic is not used and forgotten until it is", "topic", name)
	}
}
