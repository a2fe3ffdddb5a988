package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/producer"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const clientID = "kubecdc"

// Bus publishes to topics of a Kafka cluster. It implements publish.Bus.
type Bus struct {
	cfg        Config
	log        *slog.Logger
	metrics    *publish.Metrics
	codec      *producer.Codec
	topicNames *kafkaconfig.Topics
	deadTopic  string
	conns      *kafkanet.Network
	net, apart kafka.RoundTripper // of conns; apart makes each request on a connection of its own
	fence      *publish.Fencing
	window     publish.Window

	absentToBeGone int32 // see the constant

	current       atomic.Pointer[view]
	logs          *publish.Logs
	logsDue       publish.Signal // check the identity of topics
	metadataDue   publish.Signal // read the metadata of the cluster
	broadcastsDue publish.Signal // advance the broadcasts: a state that they wait for has changed

	old      atomic.Bool // a broker's age is logged
	accepted bool        // a topic of events has passed its check; belongs to manage's goroutine

	mu         sync.Mutex
	closed     bool // Run has ended
	topics     map[string]*topic
	trouble    map[string]error // by topic, or topic and partition; "": the cluster
	broadcasts []*broadcast     // in flight
	openings   openings
	reported   map[string]time.Time // by run and resource: time of the last report to all topics of the resource
	listed     []string             // all topics of the cluster, as of listedAt
	listedAt   time.Time
	listWanted bool
}

// Config is the settings of the bus.
type Config = kafkaconfig.Config

// Opener makes writers and readers of settings.
type Opener struct{ *Config }

// Open implements driver.Opener.
func (o Opener) Open(e *driver.Env) (publish.Bus, error) {
	cfg := *o.Config
	cfg.Env = *e
	if o.ShowsSecret() {
		e.Log.Warn(
			"the secret is sent to the brokers unencrypted, and readable on the network: set bus.kafka.tls, or use a SCRAM mechanism",
			"mechanism", string(o.SASL.Mechanism))
	}
	return New(cfg, e.Log, e.Metrics)
}

// New returns a bus; Run connects it. cfg must be valid, see Config.Validate.
func New(cfg Config, log *slog.Logger, m *publish.Metrics) (*Bus, error) {
	names, dead, err := destinations(&cfg)
	if err != nil {
		return nil, err
	}
	codec, err := producer.NewCodec(string(cfg.Compression), runtime.GOMAXPROCS(0))
	if err != nil {
		return nil, err
	}
	b := &Bus{
		cfg:           cfg,
		log:           log,
		metrics:       cmp.Or(m, publish.NewMetrics(nil)),
		codec:         codec,
		topicNames:    names,
		deadTopic:     dead,
		fence:         publish.NewFencing(cfg.Fence),
		metadataDue:   publish.NewSignal(),
		logsDue:       publish.NewSignal(),
		broadcastsDue: publish.NewSignal(),
		topics:        map[string]*topic{},
		trouble:       map[string]error{},
		reported:      map[string]time.Time{},
		openings:      newOpenings(),

		absentToBeGone: absentToBeGone,
	}
	b.conns = newNetwork(b)
	b.net, b.apart = b.conns, kafkanet.Apart{Network: b.conns}
	b.logs = publish.NewLogs(b.takes)
	b.current.Store(&view{old: make(chan struct{})})
	if name, ok := names.Fixed(); ok {
		b.acquire([]byte(name)) // never released, so Run looks it up before the first event
	}
	if dead != "" {
		b.acquire([]byte(dead))
	}
	return b, nil
}

// destinations returns the topics that c names, and the topic of dead letters, "" for none.
func destinations(c *Config) (names *kafkaconfig.Topics, dead string, err error) {
	names, err = kafkaconfig.NewTopics(c.Topic, c.Cluster)
	if err != nil || c.DeadLetter == "" {
		return names, "", err
	}
	t, err := kafkaconfig.NewTopics(c.DeadLetter, c.Cluster)
	if err != nil {
		return nil, "", fmt.Errorf("dead letters: %w", err)
	}
	dead, ok := t.Fixed()
	switch {
	case !ok:
		return nil, "",
			fmt.Errorf(
				"dead letters: topic template %q: {cluster} is the only placeholder, because all dead letters go to one topic",
				c.DeadLetter)
	case names.Match(dead, nil):
		return nil, "", fmt.Errorf("dead letters: topic %s also matches the topic template: use another", dead)
	}
	return names, dead, nil
}

// Run implements publish.Bus. Its error wraps ErrStream if a topic cannot hold the events to be
// published.
func (b *Bus) Run(ctx context.Context) error {
	defer b.shutdown()
	if err := b.Check(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.manage(ctx, g) })
	g.Go(func() error { return b.watchLogs(ctx) })
	g.Go(func() error { return b.runBroadcasts(ctx) })
	return g.Wait()
}

// Check returns the immediate error of Run: a TLS file that cannot be used. It connects to nothing.
func (b *Bus) Check() error {
	_, err := b.cfg.TLS.Config()
	return err
}

// shutdown ends the waiting events, after all goroutines have ended.
func (b *Bus) shutdown() {
	b.metrics.Connected.Set(0)
	b.mu.Lock()
	b.closed = true
	var waiting []*publish.Event
	for _, bc := range b.broadcasts {
		waiting = append(waiting, bc.event)
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
	b.conns.Close()
}

// Ready returns nil while brokers answer, the fixed topics are checked, and no trouble needs an
// operator.
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

// troubles returns the errors, except those of topics that never existed and that only retiring
// scopes wait for.
func (b *Bus) troubles() []error {
	const most = 3 // there may be one for each partition
	excused := map[string]bool{}
	b.mu.Lock()
	trouble := maps.Clone(b.trouble)
	for about := range trouble {
		if t := b.topics[about]; t != nil && t.partitions.Load() == nil {
			excused[about] = b.isExcused(t)
		}
	}
	b.mu.Unlock()
	var errs []error
	for _, about := range slices.Sorted(maps.Keys(trouble)) {
		if !excused[about] {
			errs = append(errs, trouble[about])
		}
	}
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most], fmt.Errorf("and %d more", more))
	}
	return errs
}

// isExcused reports whether t, without known partitions, is no trouble: only events of retiring
// scopes wait for it, or the progress of the agent, which has other topics. It must be called with
// mu held.
func (b *Bus) isExcused(t *topic) bool {
	_, only := b.topicNames.Fixed()
	waits := false
	matters := func(d *object.Delta) bool {
		waits = true
		switch {
		case d.Report != nil:
			return only
		case b.cfg.Retiring == nil:
			return true
		case d.Stream != nil:
			return !b.cfg.Retiring(d.Stream.Scope)
		}
		return !b.cfg.Retiring(d.Scope)
	}
	for _, e := range t.waiting {
		if matters(e.Delta) {
			return false
		}
	}
	for _, bc := range b.broadcasts {
		if slices.Contains(bc.topics, t) && matters(bc.event.Delta) {
			return false
		}
	}
	return waits
}

func (b *Bus) setTrouble(about string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble[about] = err
}

func (b *Bus) clearTrouble(about string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.trouble[about]; ok {
		delete(b.trouble, about)
		b.metadataDue.Raise() // reading them updates the metric connected
	}
}

// Publish implements publish.Bus. A stream event, and the progress of the agent, goes to every
// partition of every topic for objects of its resource; see broadcast.
func (b *Bus) Publish(e *publish.Event) {
	if (e.Delta.Stream != nil || e.Delta.Report != nil) && !e.DeadLetter {
		b.startBroadcast(e)
		return
	}
	var buf [kafkaconfig.MaxTopic + 1]byte
	name := append(buf[:0], b.deadTopic...)
	if !e.DeadLetter {
		name = b.topicNames.Append(buf[:0], e.Delta)
	}
	switch {
	case len(name) == 0:
		e.Done(fmt.Errorf("publish %s: %w: there is no topic of dead letters", e.ID, publish.ErrRefused))
	case len(name) > kafkaconfig.MaxTopic:
		e.Done(errTopicName(e, name))
	case !b.handOver(e, name):
		e.Done(publish.ErrClosed)
	}
}

func errTopicName(e *publish.Event, name []byte) error {
	return fmt.Errorf("publish %s: %w: its topic would have %d bytes, Kafka allows %d: shorten bus.kafka.topic", e.ID,
		publish.ErrRefused, len(name), kafkaconfig.MaxTopic)
}

// handOver gives an event to its partition, or queues it until the topic is ready. It reports false
// if Run has ended.
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
		return true
	}
	if (*all)[partitionOf(e.PartitionKey, t.numbers)].inbox.Put(b.record(t, e)) {
		return true
	}
	t.users.Add(-1)
	return false
}

func (b *Bus) record(t *topic, e *publish.Event) record {
	d := e.Delta
	return record{
		Record: producer.Record{
			Event:     e.Event,
			Key:       e.PartitionKey,
			Time:      timeOf(d),
			Tombstone: b.cfg.Tombstones && d.Stream == nil && d.Op == object.Deleted && t.name != b.deadTopic,
		},
		event: e, alone: e.Alone,
	}
}

// timeOf returns the timestamp of an event, in milliseconds since 1970.
func timeOf(d *object.Delta) int64 {
	if d.Observed > 0 {
		return d.Observed / int64(time.Millisecond)
	}
	return time.Now().UnixMilli()
}

// Logs returns the stored state of the topics.
func (b *Bus) Logs() *publish.Logs { return b.logs }
