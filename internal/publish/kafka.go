package publish

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

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// KafkaWorkers is how many events should be on their way to Kafka at once: what waits for a partition makes up its next
// batch, so more of them make larger batches. With DefaultWorkers the throughput is a fifth less.
const KafkaWorkers = 2 * DefaultWorkers

// KafkaCopies is how many times an event is held until it is acknowledged: as it was encoded, in its record, and in its batch.
const KafkaCopies = 3

// kafkaClientID is what brokers know us by, in quotas and logs.
const kafkaClientID = "kubecdc"

// KafkaConfig says where a Kafka publisher publishes to.
type KafkaConfig struct {
	Brokers []string // host:port; one that answers is enough, it tells the others
	Cluster string   // of Kubernetes: {cluster} in topics
	Topic   string   // template, see NewTopics; "": DefaultTopic

	Compression   string // zstd, lz4, snappy, gzip or none; "": zstd
	Tombstones    bool   // behind an event of op d a record with its key and no value
	Create        *KafkaTopic
	MaxEventBytes int  // the largest event that will be published: topics must take it
	TLS           *TLS // nil: none
	SASL          *SASL
	DeadLetter    string // topic of what is refused, {cluster} allowed; "": none
	// Retiring reports whether a scope is no longer selected. What is wrong with a topic that only such scopes wait for does not make
	// the bus unready. nil: none is.
	Retiring func(scope string) bool
	Fence    Fence // asked before each batch, and before each write of one to the socket; nil: everything passes
}

// Kafka publishes to topics of a Kafka cluster, as an idempotent producer of its own. See doc.go's part on it for how.
type Kafka struct {
	cfg        KafkaConfig
	log        *slog.Logger
	metrics    *Metrics
	codec      *codec
	topicNames *Topics
	deadTopic  string
	net        kafka.RoundTripper
	fence      *Fencing
	window     Window

	absentToBeGone int32 // see the constant

	current    atomic.Pointer[view]
	controller atomic.Int32
	logs       *Logs
	logsDue    chan struct{} // room for one: look at the identity of topics; a full one says so already. Never closed.
	look       chan struct{} // room for one: look at the cluster; a full one says so already. Never closed.
	ended      chan struct{} // closed when Run has ended

	mu       sync.Mutex
	topics   map[string]*topic
	trouble  map[string]error     // by topic, or topic and partition; "": the cluster
	progress map[string]time.Time // by source and scope: when a progress went to all topics of it

	listing  chan struct{} // held by whoever reads or writes listed. Never closed.
	listed   []string
	listedAt time.Time

	records sync.Pool
	batches sync.Pool
}

// NewKafka checks the configuration and returns a publisher that Run connects.
func NewKafka(cfg KafkaConfig, log *slog.Logger, m *Metrics) (*Kafka, error) {
	names, err := NewTopics(cfg.Topic, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("no brokers: name some as host:port in bus.kafka.brokers")
	}
	for _, b := range cfg.Brokers {
		host, port, err := net.SplitHostPort(b)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" || strings.ContainsAny(b, "/@ ") {
			if _, rest, ok := strings.Cut(b, "@"); ok { // what stands before it may be a password
				b = "…@" + rest
			}
			return nil, fmt.Errorf("broker %q: must be host:port", b)
		}
	}
	if c := cfg.Create; c != nil && (c.Partitions < 0 || c.ReplicationFactor < 0 || c.ReplicationFactor > 1<<15-1 || c.Partitions > 1<<31-1) {
		return nil, fmt.Errorf("topic creation: %d partitions and %d replicas: must be at least 1", c.Partitions, c.ReplicationFactor)
	}
	dead := ""
	if cfg.DeadLetter != "" {
		t, err := newTopics(cfg.DeadLetter, cfg.Cluster, false)
		if err != nil {
			return nil, fmt.Errorf("dead letters: %w", err)
		}
		dead, _ = t.Fixed()
		if names.Match(dead, nil) {
			return nil, fmt.Errorf("dead letters: topic %s is one that the topic template makes too: name another", dead)
		}
	}
	codec, err := newCodec(cfg.Compression, runtime.GOMAXPROCS(0))
	if err != nil {
		return nil, err
	}
	mechanism, err := cfg.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	if m == nil {
		m = NewMetrics(nil)
	}
	fence := NewFencing(cfg.Fence)
	k := &Kafka{
		cfg: cfg, log: log, metrics: m, codec: codec, topicNames: names, deadTopic: dead, fence: fence,
		net:     newKafkaNet(cfg.TLS, cfg.SASL, mechanism, kafkaClientID, fence),
		look:    make(chan struct{}, 1),
		logsDue: make(chan struct{}, 1),
		ended:   make(chan struct{}),
		topics:  map[string]*topic{},
		trouble: map[string]error{}, progress: map[string]time.Time{},
		listing: make(chan struct{}, 1),

		absentToBeGone: absentToBeGone,
	}
	k.logs = NewLogs(k.takes)
	k.cfg.Brokers = slices.Clone(cfg.Brokers)
	k.current.Store(&view{old: make(chan struct{})})
	k.controller.Store(-1)
	if name, ok := names.Fixed(); ok {
		k.acquire([]byte(name)) // for ever: they are looked for before the first event
	}
	if dead != "" {
		k.acquire([]byte(dead))
	}
	return k, nil
}

// Run connects, finds topics, creates them where told to, and keeps the connections until ctx ends; then it returns nil. A
// bus that is not there yet is no error: Run says so and goes on trying. It returns an error that wraps ErrStream where a
// topic cannot take what will be published, and another where files of TLS cannot be read.
//
// End ctx only after the last call of Publish has returned: those that have not then return ErrClosed. Call it once.
func (k *Kafka) Run(ctx context.Context) error {
	defer k.shutdown()
	if err := k.Check(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.manage(ctx, g) })
	g.Go(func() error { return k.watchLogs(ctx) })
	return g.Wait()
}

// Check returns what Run would end with at once: a file of TLS that cannot be used. It connects to nobody.
func (k *Kafka) Check() error {
	_, err := k.cfg.TLS.Config()
	return err
}

func (k *Kafka) shutdown() {
	k.metrics.Connected.Set(0)
	close(k.ended)
	if n, ok := k.net.(*kafkaNet); ok {
		n.close()
	}
}

func (k *Kafka) sweep() {
	if n, ok := k.net.(*kafkaNet); ok {
		n.sweep()
	}
}

// Ready returns nil while brokers answer, the topics that are known beforehand have been checked, and nothing is wrong
// that a person must put right.
func (k *Kafka) Ready() error {
	select {
	case <-k.ended:
		return ErrClosed
	default:
	}
	if errs := k.troubles(); len(errs) > 0 {
		return fmt.Errorf("kafka at %s: %w", strings.Join(k.cfg.Brokers, ","), errors.Join(errs...))
	}
	if len(k.view().brokers) == 0 {
		return fmt.Errorf("not connected to kafka at %s yet", strings.Join(k.cfg.Brokers, ","))
	}
	name, _ := k.topicNames.Fixed()
	for _, name := range []string{name, k.deadTopic} {
		k.mu.Lock()
		t := k.topics[name]
		k.mu.Unlock()
		if name != "" && t.partitions.Load() == nil {
			return fmt.Errorf("kafka topic %s is not found or checked yet", name)
		}
	}
	return nil
}

func (k *Kafka) troubles() []error {
	const most = 3 // it may be one for each partition
	var errs []error
	for _, tr := range k.allTroubles() {
		if len(tr.scopes) > 0 && k.cfg.Retiring != nil && !slices.ContainsFunc(tr.scopes, func(s string) bool { return !k.cfg.Retiring(s) }) {
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

func (k *Kafka) allTroubles() (out []trouble) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, about := range slices.Sorted(maps.Keys(k.trouble)) {
		tr := trouble{err: k.trouble[about]}
		if t := k.topics[about]; t != nil && t.partitions.Load() == nil {
			tr.scopes = slices.Collect(maps.Keys(t.scopes))
		}
		out = append(out, tr)
	}
	return out
}

func (k *Kafka) setTrouble(about string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trouble[about] = err
}

// setTroubleOf is setTrouble about a topic that somebody waits for.
func (k *Kafka) setTroubleOf(t *topic, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.wanted() {
		k.trouble[t.name] = err
	}
}

func (k *Kafka) clearTrouble(about string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.trouble[about]; ok {
		delete(k.trouble, about)
		k.refresh() // which says that we are connected
	}
}

// Publish implements Publisher. It waits for Run to have connected. A stream event it hands to every partition of every
// topic that objects of its resource go to, and returns when all of them have it; for progress see publishProgress.
func (k *Kafka) Publish(ctx context.Context, ev *encode.Event) error {
	switch d := ev.Delta; {
	case d.Stream != nil && d.Stream.Kind == object.Progress:
		return k.publishProgress(ctx, ev)
	case d.Stream != nil:
		return k.publishStream(ctx, ev)
	}
	var buf [maxTopic + 1]byte
	return k.publishTo(ctx, ev, k.topicNames.Append(buf[:0], ev.Delta), k.cfg.Tombstones)
}

func (k *Kafka) publishTo(ctx context.Context, ev *encode.Event, name []byte, tombstones bool) error {
	if len(name) > maxTopic {
		return fmt.Errorf("publish %s: %w: its topic would have %d bytes, Kafka allows %d: shorten bus.kafka.topic", ev.ID, ErrRefused, len(name), maxTopic)
	}
	t := k.acquire(name)
	defer k.release(t)
	t.written.Store(time.Now().UnixNano())
	all, err := k.wait(ctx, t, scopeOf(ev.Delta), false)
	if err != nil {
		return err
	}
	p := all[partitionOf(ev.PartitionKey, len(all))]
	r := k.record()
	r.load(ev, ev.PartitionKey, tombstones)
	if err := p.publish(ctx, r); err != nil {
		return publishError(ev, p, err)
	}
	if k.topicNames.Varies() && t.name != k.deadTopic {
		t.ledger.stored(ev)
	}
	return nil
}

// publishError adds what an error of the bus is about.
func publishError(ev *encode.Event, p *partition, err error) error {
	if errors.Is(err, ErrRefused) {
		return fmt.Errorf("publish %s to topic %s, partition %d: %w", ev.ID, p.topic.name, p.index, err)
	}
	return err
}

func (k *Kafka) publishStream(ctx context.Context, ev *encode.Event) error {
	for {
		names, mayGo, err := k.streamTopics(ctx, ev.Delta)
		if err != nil {
			return fmt.Errorf("publish %s: %w", ev.ID, err)
		}
		topics := k.acquireAll(names)
		taken, err := k.publishEverywhere(ctx, ev, topics, mayGo)
		k.releaseAll(topics)
		if err != nil || taken {
			return err
		}
	}
}

// publishEverywhere publishes a stream event to every partition of topics. Where mayGo is set, a topic that is deleted
// meanwhile need not have it; taken reports whether one has.
func (k *Kafka) publishEverywhere(ctx context.Context, ev *encode.Event, topics []*topic, mayGo bool) (taken bool, err error) {
	var all []sent
	for _, t := range topics {
		var partitions []*partition
		if partitions, err = k.wait(ctx, t, scopeOf(ev.Delta), mayGo); errors.Is(err, errTopicGone) {
			err = nil
			continue
		}
		for i := 0; i < len(partitions) && err == nil; i++ {
			var s sent
			if s, err = k.enqueueStream(ev, partitions[i]); err == nil {
				all = append(all, s)
			}
		}
		if err != nil {
			break
		}
	}
	// All are waited for, even after an error: none is left behind.
	for _, s := range all {
		switch aerr := s.p.await(ctx, s.r, mayGo); {
		case aerr == nil:
			taken = true
		case !errors.Is(aerr, errTopicGone) && err == nil:
			err = publishError(ev, s.p, aerr)
		}
	}
	return taken, err
}

// sent is a record that a partition has been handed.
type sent struct {
	p *partition
	r *record
}

// enqueueStream hands a stream event to a partition, under the key of that partition.
func (k *Kafka) enqueueStream(ev *encode.Event, p *partition) (sent, error) {
	key := append(slices.Clone(ev.PartitionKey), '/')
	r := k.record()
	r.load(ev, strconv.AppendInt(key, int64(p.index), 10), false)
	return sent{p, r}, p.enqueue(r)
}

// DeadLetters publishes to the topic of what is refused; nil: none is configured.
func (k *Kafka) DeadLetters() Publisher {
	if k.deadTopic == "" {
		return nil
	}
	return deadTopic{k}
}

type deadTopic struct{ k *Kafka }

// Publish implements Publisher: any event goes to the one partition that its key belongs to, without tombstone.
func (d deadTopic) Publish(ctx context.Context, ev *encode.Event) error {
	return d.k.publishTo(ctx, ev, []byte(d.k.deadTopic), false)
}

func (k *Kafka) record() *record {
	if r, ok := k.records.Get().(*record); ok {
		return r
	}
	return &record{done: make(chan error, 1)}
}

func (k *Kafka) releaseRecord(r *record) {
	if cap(r.buf) > maxKeptRecord {
		r.buf = nil
	}
	k.records.Put(r)
}

func (k *Kafka) batch() *batch {
	if b, ok := k.batches.Get().(*batch); ok {
		return b
	}
	return new(batch)
}

func (k *Kafka) releaseBatch(b *batch) {
	if cap(b.set) <= maxKeptBatch {
		k.batches.Put(b)
	}
}
