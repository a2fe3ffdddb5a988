package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	// A topic is evicted after topicIdle without an event of an object, and topicRest without any
	// event: stream events and reports bring a topic back for a few minutes.
	topicIdle = time.Hour
	topicRest = 5 * time.Minute

	minBatch = 16 << 10 // bytes
	// bytes, unless one event is larger; a topic may permit more, but brokers also bound requests
	// (socket.request.max.bytes)
	largestBatch    = 4 << 20
	defaultMaxBatch = 1_000_000 // bytes, if the topic's limit cannot be read; Kafka's default is 1,048,588
)

// topic is a topic with events. It is evicted after a long time without use.
type topic struct {
	name string
	// limit of a batch before compression, in bytes; below ceiling after the broker has refused one
	maxBatch   atomic.Int64
	ceiling    atomic.Int64                 // bytes
	partitions atomic.Pointer[[]*partition] // nil: the topic is not found or checked yet
	numbers    []int                        // of the partitions. Guarded by Bus.mu.
	running    context.Context              //nolint:containedctx // context of its partitions
	end        context.CancelFunc           // ends running; nil: not started

	// users is the number of its events and broadcasts in flight. It is raised only with Bus.mu
	// held, so 0 with Bus.mu held means unused.
	users   atomic.Int32
	used    atomic.Int64 // last end of an event, in nanoseconds since 1970
	written atomic.Int64 // last arrival of an event of an object, in the same unit; 0: never
	ledger  ledger

	waiting []*publish.Event // wait for partitions, in order of arrival. Guarded by Bus.mu.

	gone     atomic.Bool  // it does not exist, and not just for a moment
	notFound atomic.Bool  // a partition did not find it
	absent   atomic.Int32 // consecutive looks that did not find it

	notFoundAt time.Time // when notFound was last seen set; belongs to manage's goroutine
	unchecked  int       // failed attempts to read its configuration; belongs to manage's goroutine
}

// MaxEventBytes implements driver.Limiter: the event fits into every topic that is in use, as far
// as their limits are known.
func (b *Bus) MaxEventBytes() int {
	most := b.cfg.MaxEventBytes
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.topics {
		if t.name == b.deadTopic || t.partitions.Load() == nil {
			continue
		}
		if n := int(t.maxBatch.Load()) - kafkaconfig.HeadRoom; most == 0 || n < most {
			most = n
		}
	}
	return most
}

func (t *topic) limitBatch(n int64) {
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

// acquire returns the topic of that name, and requests its lookup. It is not evicted before
// release. acquire must be called with mu held.
func (b *Bus) acquire(name []byte) *topic {
	t := b.topics[string(name)]
	if t == nil {
		t = &topic{name: string(name), ledger: newLedger()}
		t.limitBatch(defaultMaxBatch)
		b.topics[t.name] = t
	}
	if t.users.Add(1) == 1 && t.partitions.Load() == nil {
		b.metadataDue.Raise()
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

func (b *Bus) wantedTopics() []*topic {
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

// evict drops topics without recent use, until their next event. Only manage, which also starts
// partitions, calls it.
func (b *Bus) evict(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, at := range b.reported {
		if now.Sub(at) > 2*reportAge { // the run has ended, or has no scope of the resource any more
			delete(b.reported, key)
		}
	}
	for name, t := range b.topics {
		if t.users.Load() > 0 || now.Sub(time.Unix(0, t.used.Load())) < topicRest ||
			now.Sub(time.Unix(0, t.written.Load())) < topicIdle {
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

// createAbsent handles a topic that does not exist: it creates the topic if so configured. f is nil
// if the broker's answer omits the topic. An error is final.
func (b *Bus) createAbsent(ctx context.Context, t *topic, f *kafka.Topic) error {
	err := error(kafka.UnknownTopicOrPartition)
	if f != nil && f.Error != nil {
		err = f.Error
	}
	switch {
	case errors.Is(err, kafka.UnknownTopicOrPartition) && b.cfg.Create != nil:
		if t.partitions.Load() != nil && !t.gone.Load() {
			return nil
		}
		if t.partitions.Load() != nil {
			b.log.Error("topic was deleted with all its records: creating it again", "topic", t.name)
		}
		if err = b.create(ctx, t); err == nil {
			return nil
		}
		err = fmt.Errorf("create topic %s: %w", t.name, err)
		if errors.Is(err, publish.ErrStream) || ctx.Err() != nil {
			return err
		}
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		err = fmt.Errorf("topic %s does not exist, and bus.kafka.create is not set", t.name)
	default:
		err = fmt.Errorf("look up topic %s: %w", t.name, err)
	}
	if t.absent.Load() < 3 {
		return nil // a new topic, or a broker that just started, is available in a moment
	}
	b.mu.Lock()
	if t.isWanted() {
		b.trouble[t.name] = err
	}
	b.mu.Unlock()
	advice := "create the topic, or set bus.kafka.create"
	if b.cfg.Create != nil {
		advice = "check the broker's error and bus.kafka.create, or create the topic"
	}
	advice = cmp.Or(adviceOnConnection(err), advice)
	if suppressed, ok := b.window.First("absent " + t.name); ok {
		b.log.Error("topic cannot be used, its events wait", "topic", t.name, "err", err, "advice", advice,
			"suppressed", suppressed)
	}
	return nil
}

func (b *Bus) create(ctx context.Context, t *topic) error {
	c := b.cfg.Create
	config := kafka.TopicConfig{
		Topic:             t.name,
		NumPartitions:     max(c.Partitions, 1),
		ReplicationFactor: max(c.ReplicationFactor, 1),
	}
	for _, name := range slices.Sorted(maps.Keys(c.Config)) {
		config.ConfigEntries = append(config.ConfigEntries, kafka.ConfigEntry{
			ConfigName:  name,
			ConfigValue: c.Config[name],
		})
	}
	broker, err := b.view().any()
	if err != nil {
		return err
	}
	res, err := b.client(broker).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
	if err != nil {
		return err
	}
	err = res.Errors[t.name]
	switch {
	case err == nil:
		b.log.Info("topic created", "topic", t.name, "partitions", c.Partitions, "replication_factor",
			c.ReplicationFactor, "config", c.Config)
	case errors.Is(err, kafka.TopicAlreadyExists): // another agent was faster
		return nil
	case errors.Is(err, kafka.InvalidReplicationFactor):
		// Perhaps not all brokers are up yet.
		return fmt.Errorf("%w: set bus.kafka.create.replicationFactor to at most the number of brokers", err)
	case errors.Is(err, kafka.InvalidTopic):
		return fmt.Errorf("%w: %w: Kafka does not distinguish '.' and '_' in topic names: change bus.kafka.topic",
			publish.ErrStream, err)
	case errors.Is(err, kafka.InvalidConfiguration), errors.Is(err, kafka.InvalidPartitionNumber):
		return fmt.Errorf("%w: %w: check bus.kafka.create", publish.ErrStream, err)
	}
	return err
}

// check checks the configuration of a topic. It reports false if the configuration is not available
// now. An error is final.
func (b *Bus) check(ctx context.Context, t *topic, f *kafka.Topic) (bool, error) {
	broker, err := b.view().any()
	if err != nil {
		return false, nil
	}
	res, err := b.client(broker).DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: t.name,
			ConfigNames: []string{
				"max.message.bytes", "cleanup.policy", "min.insync.replicas", "retention.ms", "retention.bytes",
			},
		}},
	})
	if err == nil && len(res.Resources) != 1 {
		return false, nil
	}
	if err == nil {
		err = res.Resources[0].Error
		t.unchecked++
	} else {
		t.unchecked = mayBeNew + 1
	}
	switch {
	case err == nil:
	case errors.Is(err, kafka.TopicAuthorizationFailed), errors.Is(err, kafka.ClusterAuthorizationFailed):
		if _, ok := b.window.First("describe denied"); ok {
			b.log.Info(
				"the user may not read the topic's configuration, so it is not checked: grant it DescribeConfigs on the topic",
				"topic", t.name)
		}
		return true, nil
	case errors.Is(err, kafka.UnsupportedVersion), errors.Is(err, kafka.InvalidRequest):
		if _, ok := b.window.First("describe unsupported"); ok {
			b.log.Warn("the broker does not report the topic's configuration, so it is not checked", "topic", t.name,
				"err", err)
		}
		return true, nil
	case t.unchecked > mayBeNew:
		if suppressed, ok := b.window.First("describe"); ok {
			b.log.Warn("cannot read the topic's configuration, retrying", "topic", t.name, "err", err, "suppressed",
				suppressed)
		}
		return false, nil
	default:
		return false, nil
	}
	config := map[string]string{}
	for _, e := range res.Resources[0].ConfigEntries {
		config[e.ConfigName] = e.ConfigValue
	}
	if err := b.checkSize(t, config["max.message.bytes"]); err != nil {
		return false, err
	}
	if notes := remarks(config, f, b.cfg.Tombstones, t.name == b.deadTopic); len(notes) > 0 {
		b.log.Info("using the existing topic", "topic", t.name, "remarks", notes)
	}
	return true, nil
}

// mayBeNew is the number of consecutive refusals to describe a topic that a broker has just created
// before they are logged.
const mayBeNew = 10

// checkSize applies a topic's max.message.bytes, if it is known. At the start it returns an error
// if an event might not fit. If the limit was lowered later, the dispatcher shortens events above
// it: to end the agent would delay all others.
func (b *Bus) checkSize(t *topic, value string) error {
	limit, err := strconv.ParseInt(value, 10, 64)
	if err != nil || limit <= 0 {
		return nil
	}
	t.limitBatch(limit)
	need := int64(b.cfg.MaxEventBytes) + kafkaconfig.HeadRoom
	if limit >= need {
		return nil
	}
	small := fmt.Sprintf(
		"its max.message.bytes is %d, and an event may need %d: run kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config max.message.bytes=%d, or lower event.maxBytes",
		limit, need, t.name, need)
	if !b.accepted {
		return fmt.Errorf("%w: topic %s: %s", publish.ErrStream, t.name, small)
	}
	if suppressed, ok := b.window.First("limit"); ok {
		b.log.Warn(
			"the limit of the bus is below event.maxBytes: events above it count as too large, and the next start is refused",
			"topic", t.name,
			"advice", small, "suppressed", suppressed)
	}
	return nil
}

func remarks(config map[string]string, f *kafka.Topic, tombstones, dead bool) []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	replicas := 0
	for _, p := range f.Partitions {
		replicas = max(replicas, len(p.Replicas))
	}
	insync, err := strconv.Atoi(config["min.insync.replicas"])
	switch {
	case err != nil:
	case insync > replicas:
		note("min.insync.replicas is %d and there are %d replicas: it accepts no record until that is changed", insync,
			replicas)
	case replicas == 1:
		note("it has one replica: records are lost with the disk of their broker")
	case insync == 1:
		note("min.insync.replicas is 1: a record is acknowledged when one broker has it, and is lost with that broker")
	}
	compacts := strings.Contains(config["cleanup.policy"], "compact")
	switch {
	case compacts && dead:
		note("it is compacted: only the last rejected event of each object is kept")
	case compacts && tombstones:
		note("it is compacted: only the last record of each object is kept, without history")
	case compacts:
		note(
			"it is compacted, and bus.kafka.tombstones is not set: the last record of a deleted object is kept forever")
	case tombstones && !dead:
		note("it is not compacted: tombstones have no effect")
	}
	return notes
}
