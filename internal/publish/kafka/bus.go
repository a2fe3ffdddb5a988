package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/kafka/producer"
)

// Copies is how many times an event is held at most until it is acknowledged: as it was encoded, and in the batch that is on its way.
const Copies = 2

// clientID is what brokers know us by, in quotas and logs.
const clientID = "kubecdc"

// Bus publishes to topics of a Kafka cluster. It implements publish.Bus.
type Bus struct {
	cfg        Config
	log        *slog.Logger
	metrics    *publish.Metrics
	codec      *producer.Codec
	topicNames *Topics
	deadTopic  string
	conns      *network
	net, apart kafka.RoundTripper // of conns; apart makes each request on a connection of its own
	fence      *publish.Fencing
	window     publish.Window

	absentToBeGone int32 // see the constant

	current atomic.Pointer[view]
	logs    *publish.Logs
	logsDue chan struct{} // room for one: look at the identity of topics; a full one says so already. Never closed.
	look    chan struct{} // room for one: look at the cluster; a full one says so already. Never closed.
	moved   chan struct{} // room for one: something that broadcasts wait for has changed. Never closed.

	mu         sync.Mutex
	closed     bool // Run has ended
	topics     map[string]*topic
	trouble    map[string]error     // by topic, or topic and partition; "": the cluster
	broadcasts []*broadcast         // that are on their way
	progress   map[string]time.Time // by source and scope: when a progress went to all topics of it
	listed     []string             // all topics of the cluster, as of listedAt
	listedAt   time.Time
	listWanted bool
}

// New checks the configuration and returns a bus that Run connects.
func New(cfg Config, log *slog.Logger, m *publish.Metrics) (*Bus, error) {
	names, dead, err := cfg.check()
	if err != nil {
		return nil, err
	}
	codec, err := producer.NewCodec(string(cfg.Compression), runtime.GOMAXPROCS(0))
	if err != nil {
		return nil, err
	}
	mechanism, err := cfg.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	if m == nil {
		m = publish.NewMetrics(nil)
	}
	fence := publish.NewFencing(cfg.Fence)
	conns := newNetwork(cfg.TLS, cfg.SASL, mechanism, fence)
	b := &Bus{
		cfg: cfg, log: log, metrics: m, codec: codec, topicNames: names, deadTopic: dead, conns: conns, net: conns, apart: apart{conns}, fence: fence,
		look: make(chan struct{}, 1), logsDue: make(chan struct{}, 1), moved: make(chan struct{}, 1),
		topics: map[string]*topic{}, trouble: map[string]error{}, progress: map[string]time.Time{},

		absentToBeGone: absentToBeGone,
	}
	b.logs = publish.NewLogs(b.takes)
	b.cfg.Brokers = slices.Clone(cfg.Brokers)
	b.current.Store(&view{old: make(chan struct{})})
	if name, ok := names.Fixed(); ok {
		b.acquire([]byte(name)) // for ever: they are looked for before the first event
	}
	if dead != "" {
		b.acquire([]byte(dead))
	}
	return b, nil
}

// check returns the topics that c names, and that of dead letters, "" for none.
func (c *Config) check() (names *Topics, dead string, err error) {
	if names, err = NewTopics(c.Topic, c.Cluster); err != nil {
		return nil, "", err
	}
	if len(c.Brokers) == 0 {
		return nil, "", errors.New("no brokers: name some as host:port in bus.kafka.brokers")
	}
	for _, broker := range c.Brokers {
		if err := checkBroker(broker); err != nil {
			return nil, "", err
		}
	}
	if t := c.Create; t != nil && (t.Partitions < 0 || t.ReplicationFactor < 0 || t.ReplicationFactor > 1<<15-1 || t.Partitions > 1<<31-1) {
		return nil, "", fmt.Errorf("topic creation: %d partitions and %d replicas: must be at least 1", t.Partitions, t.ReplicationFactor)
	}
	if c.DeadLetter == "" {
		return names, "", nil
	}
	t, err := newTopics(c.DeadLetter, c.Cluster, false)
	if err != nil {
		return nil, "", fmt.Errorf("dead letters: %w", err)
	}
	if dead, _ = t.Fixed(); names.Match(dead, nil) {
		return nil, "", fmt.Errorf("dead letters: topic %s is one that the topic template makes too: name another", dead)
	}
	return names, dead, nil
}

func checkBroker(broker string) error {
	host, port, err := net.SplitHostPort(broker)
	if n, perr := strconv.ParseUint(port, 10, 16); err == nil && perr == nil && n > 0 && host != "" && !strings.ContainsAny(broker, "/@ ") {
		return nil
	}
	if _, rest, ok := strings.Cut(broker, "@"); ok { // what stands before it may be a password
		broker = "…@" + rest
	}
	return fmt.Errorf("broker %q: must be host:port", broker)
}

// Run implements publish.Bus. It finds topics and creates them if the configuration says so. It returns an error that wraps ErrStream if a topic
// cannot take what will be published, and another if files of TLS cannot be read.
func (b *Bus) Run(ctx context.Context) error {
	defer b.shutdown()
	if err := b.Check(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.manage(ctx, g) })
	g.Go(func() error { return b.watchLogs(ctx) })
	g.Go(func() error { return b.spread(ctx) })
	return g.Wait()
}

// Check returns what Run would end with at once: a file of TLS that cannot be used. It connects to nobody.
func (b *Bus) Check() error {
	_, err := b.cfg.TLS.Config()
	return err
}

// shutdown ends what waits, after all goroutines have ended.
func (b *Bus) shutdown() {
	b.metrics.Connected.Set(0)
	b.mu.Lock()
	b.closed = true
	var waiting []*publish.Event
	for _, s := range b.broadcasts {
		waiting = append(waiting, s.event)
	}
	for _, t := range b.topics {
		waiting = append(waiting, t.waiting...)
		t.waiting = nil
	}
	b.broadcasts = nil
	b.mu.Unlock()
	for _, e := range waiting {
		e.Done(publish.ErrClosed)
	}
	b.conns.close()
}

// Ready returns nil while brokers answer, the topics that are known beforehand have been checked, and nothing is wrong
// that a person must put right.
func (b *Bus) Ready() error {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return publish.ErrClosed
	}
	if errs := b.troubles(); len(errs) > 0 {
		return fmt.Errorf("kafka at %s: %w", strings.Join(b.cfg.Brokers, ","), errors.Join(errs...))
	}
	if len(b.view().brokers) == 0 {
		return fmt.Errorf("not connected to kafka at %s yet", strings.Join(b.cfg.Brokers, ","))
	}
	name, _ := b.topicNames.Fixed()
	for _, name := range []string{name, b.deadTopic} {
		b.mu.Lock()
		t := b.topics[name]
		b.mu.Unlock()
		if name != "" && t.partitions.Load() == nil {
			return fmt.Errorf("kafka topic %s is not found or checked yet", name)
		}
	}
	return nil
}

func (b *Bus) troubles() []error {
	const most = 3 // it may be one for each partition
	var errs []error
	for _, tr := range b.allTroubles() {
		if len(tr.scopes) > 0 && b.cfg.Retiring != nil && !slices.ContainsFunc(tr.scopes, func(s string) bool { return !b.cfg.Retiring(s) }) {
			continue
		}
		errs = append(errs, tr.err)
	}
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most], fmt.Errorf("and %d more", more))
	}
	return errs
}

// trouble is what is wrong, and the scopes that wait for a topic because of it.
type trouble struct {
	err    error
	scopes []string // none: it is not about a topic that was never there
}

func (b *Bus) allTroubles() (out []trouble) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, about := range slices.Sorted(maps.Keys(b.trouble)) {
		tr := trouble{err: b.trouble[about]}
		if t := b.topics[about]; t != nil && t.partitions.Load() == nil {
			tr.scopes = slices.Collect(maps.Keys(t.scopes))
		}
		out = append(out, tr)
	}
	return out
}

func (b *Bus) setTrouble(about string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble[about] = err
}

// setTroubleOf is setTrouble about a topic that somebody waits for.
func (b *Bus) setTroubleOf(t *topic, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.isWanted() {
		b.trouble[t.name] = err
	}
}

func (b *Bus) clearTrouble(about string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.trouble[about]; ok {
		delete(b.trouble, about)
		b.refresh() // which says that we are connected
	}
}

// Publish implements publish.Bus. A stream event goes to every partition of every topic that objects of its resource go to; see broadcast.
func (b *Bus) Publish(e *publish.Event) {
	if e.Delta.Stream != nil && !e.DeadLetter {
		b.startBroadcast(e)
		return
	}
	var buf [maxTopic + 1]byte
	name := append(buf[:0], b.deadTopic...)
	if !e.DeadLetter {
		name = b.topicNames.Append(buf[:0], e.Delta)
	}
	switch {
	case len(name) == 0:
		e.Done(fmt.Errorf("publish %s: %w: there is no topic of dead letters", e.ID, publish.ErrRefused))
		return
	case len(name) > maxTopic:
		e.Done(errTopicName(e, name))
		return
	}
	if !b.handOver(e, name) {
		e.Done(publish.ErrClosed)
	}
}

func errTopicName(e *publish.Event, name []byte) error {
	return fmt.Errorf("publish %s: %w: its topic would have %d bytes, Kafka allows %d: shorten bus.kafka.topic", e.ID, publish.ErrRefused, len(name), maxTopic)
}

// handOver gives an event to its partition, or has it wait for the topic. It reports false if Run has ended.
func (b *Bus) handOver(e *publish.Event, name []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	t := b.acquire(name)
	t.written.Store(time.Now().UnixNano())
	all := t.partitions.Load()
	if all == nil {
		t.waiting = append(t.waiting, e)
		t.await(scopeOf(e.Delta), 1)
		return true
	}
	if (*all)[partitionOf(e.PartitionKey, len(*all))].enqueue(b.record(t, e)) {
		return true
	}
	t.users.Add(-1)
	return false
}

// record is an event as a record of its topic.
func (b *Bus) record(t *topic, e *publish.Event) record {
	d := e.Delta
	return record{
		Record: producer.Record{
			Event: e.Event, Key: e.PartitionKey, Time: timeOf(d),
			Tombstone: b.cfg.Tombstones && d.Stream == nil && d.Op == object.Deleted && t.name != b.deadTopic,
		},
		event: e, alone: e.Alone,
	}
}

// timeOf is the timestamp of an event, in milliseconds since 1970.
func timeOf(d *object.Delta) int64 {
	if d.Observed > 0 {
		return d.Observed / int64(time.Millisecond)
	}
	return time.Now().UnixMilli()
}

// Logs compares topics with what is remembered of them.
func (b *Bus) Logs() *publish.Logs { return b.logs }
