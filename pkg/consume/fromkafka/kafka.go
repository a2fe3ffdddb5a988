package fromkafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Kafka is a Source of Kafka topics. Each partition is a log. A stream event is in every partition,
// with the same ID: use a Tracker for each partition, chosen by Event.Position.
//
// Readers skip tombstones, which follow the deletion of an object in a compacted topic.
type Kafka struct {
	Brokers []string
	// Dialer has the settings of TLS and SASL; nil: neither.
	Dialer *kafka.Dialer
	// Topics are the topics to read, besides those for which Match returns true. A topic that is
	// created later is read from its beginning.
	Topics []string
	Match  func(topic string) bool

	// Cluster is the name of the Kubernetes cluster, which the agent's keys begin with. If it is
	// set, and every Objects of a query has one group, a resource, a namespace and a name, only the
	// partitions of these keys are read. Records that are older than the topic's last increase of
	// partitions may be in other partitions.
	Cluster string

	// OnOpen is called by Read with the topics that are read. errorOf asks for another one, and
	// returns the error that the brokers have for it. nil: nobody needs to know.
	OnOpen func(ctx context.Context, topics []string, errorOf func(ctx context.Context, topic string) error)

	// OnThrottle is called when a broker requires a pause because of a quota, or extends it by some
	// time. The reader sends nothing to the broker until then. It must not block; nil: nobody needs
	// to know.
	OnThrottle func(broker string, until time.Time, extended time.Duration)

	// Group is the name of a consumer group, "" for none. Its members share the partitions and
	// continue at the group's offsets. Query.Start applies to a group without offsets. The Reader
	// is a Committer.
	Group string
}

// Committer is a Reader of a consumer group.
//
// Commit stores the positions at which the group continues. It ignores positions in logs that this
// reader does not read at present, or in earlier logs of the same name: their records are delivered
// again. It may be called at the same time as the methods of Reader.
type Committer interface {
	Commit(ctx context.Context, positions ...consume.Position) error
}

const (
	// of one partition at a time. The server may cut the last batch of records; then that is
	// fetched again.
	fetchBytes = 4 << 20
	fetchWait  = time.Second
	// mergeBytes limits, with Query.ByTime, what the partitions together fetch at a time. Twice as
	// much may be in memory. A partition fetches leastFetch in any case.
	mergeBytes = 24 << 20
	leastFetch = 64 << 10
	// identityAge is the interval at which topics, partitions and identities are always looked up.
	identityAge = time.Minute
	// identityPause is the interval at which the identity of a partition is looked up while its
	// records arrive without a pause.
	identityPause = time.Second
	// oddLooks is the number of successive looks that must show a partition ending before the
	// reader's position: a new leader may lag.
	oddLooks = 3
	// absentFor is the time for which metadata must lack a partition that is read: a broker that
	// has just started may not know its topics yet.
	absentFor = 3 * time.Second
)

// errDeleted means that a partition no longer exists.
var errDeleted = fmt.Errorf("it was deleted: %w", kafka.UnknownTopicOrPartition)

// partitionID names a log, whatever its identity.
type partitionID struct {
	topic string
	index int
}

func idOf(l consume.Log) partitionID { return partitionID{l.Name, l.Partition} }

// kafkaReader reads partitions, each by a kafkaFetcher. Its fields belong to the goroutine that
// calls Next, except those below state.
type kafkaReader struct {
	s      *Kafka
	q      consume.Query
	client *kafka.Client
	conns  *kafkanet.Network // of the client

	// ctx is that of all fetchers, also of partitions that are added later. It ends with Close.
	ctx      context.Context //nolint:containedctx // the fetchers of Open outlive the call
	cancel   context.CancelFunc
	fetching sync.WaitGroup
	batches  chan *kafkaBatch // not buffered, so a fetcher is at most one batch ahead of Next. Never closed.

	pending     *kafkaBatch // has not been returned as a whole; with Query.ByTime, hands has these
	hands       map[*kafkaPartition]*kafkaHand
	interrupted bool // OnRetry has been called more often than OnResume
	topics      map[string]int
	copies      map[string]int // with Query.OneCopy, the partition of each topic that is read
	looked      time.Time      // when topics were looked up
	gone        error          // a partition was deleted before its end was read, with Query.StopAtEnd
	group       *kafkaGroup
	sharing     atomic.Int64 // the number of partitions that are read

	state      sync.Mutex
	partitions map[partitionID]*kafkaPartition  // that are read
	at         map[partitionID]consume.Position // of all that were read, or are to be
}

// kafkaPartition is the state of a partition. kafkaReader.state guards it.
type kafkaPartition struct {
	log     consume.Log
	next    int64
	end     int64     // when records were last fetched
	ended   bool      // all that Query.StopAtEnd asks for has been returned
	left    bool      // nobody wants the rest
	absent  time.Time // since when metadata has lacked it; zero: it does not
	fetcher *kafkaFetcher
}

// kafkaBatch is a message to Next from a fetcher or the group.
type kafkaBatch struct {
	of      *kafkaPartition
	log     consume.Log // with the identity that the records belong to
	records []kafka.Message
	next    int64 // offset after the records
	end     int64 // of the partition
	last    bool  // there is no other

	missed *consume.MissedError            // instead of records
	err    error                           // why nothing can be read at present
	begin  map[partitionID]*kafkaPartition // the partitions that the group assigns from now on; nil: as before
}

// Traits implements consume.Source. The partitions of a group are those of one member: it may miss
// some, and reads what it has.
func (k *Kafka) Traits() consume.Traits { return consume.Traits{Merges: k.Group == ""} }

// Read looks up topics, their beginnings and ends. With a group, it starts to join the group.
func (k *Kafka) Read(ctx context.Context, q consume.Query) (consume.Reader, error) {
	if len(k.Brokers) == 0 {
		return nil, errors.New("read Kafka: no brokers are given")
	}
	q.ByTime, q.OneCopy = q.ByTime && q.StopAtEnd && k.Group == "", q.OneCopy && k.Group == ""
	d := k.dialer()
	r := &kafkaReader{
		s:       k,
		q:       q,
		batches: make(chan *kafkaBatch),
		looked:  time.Now(),
		conns: kafkanet.New(kafkanet.Options{
			ClientID:   d.ClientID,
			Dial:       dialKafka(d),
			Mechanism:  d.SASLMechanism,
			OnThrottle: k.OnThrottle,
		}),
		partitions: map[partitionID]*kafkaPartition{},
		at:         map[partitionID]consume.Position{},
		copies:     map[string]int{},
	}
	r.client = &kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: kafkanet.NewCluster(r.conns, k.Brokers)}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, p := range q.Start.Positions() {
		r.at[idOf(p.Log)] = p
	}
	if err := r.open(ctx); err != nil {
		_ = r.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	if r.group != nil {
		return r.group, nil
	}
	return r, nil
}

func (k *Kafka) dialer() *kafka.Dialer {
	if k.Dialer != nil {
		return k.Dialer
	}
	return &kafka.Dialer{Timeout: apiTimeout, DualStack: true}
}

// dialKafka returns the function with which connections are made, TLS included.
func dialKafka(d *kafka.Dialer) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := d.DialFunc
	if dial == nil {
		plain := &net.Dialer{Timeout: cmp.Or(d.Timeout, dialTimeout), LocalAddr: d.LocalAddr, KeepAlive: d.KeepAlive}
		dial = plain.DialContext
	}
	if d.TLS == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		config := d.TLS.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
		}
		return secured, nil
	}
}

func (r *kafkaReader) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var err error
	r.topics, err = r.find(ctx)
	if err != nil {
		return err
	}
	if len(r.topics) == 0 {
		return fmt.Errorf(
			"%w: none of the topics to read is at %s: check their names, or start the agent, which creates them if bus.kafka.create is set",
			consume.ErrNoStream, r.brokers())
	}
	if r.s.OnOpen != nil {
		r.s.OnOpen(ctx, slices.Collect(maps.Keys(r.topics)), r.errorOf)
	}
	if r.s.Group != "" {
		return r.join(ctx)
	}
	return r.begin(ctx, r.q.Start)
}

// errorOf returns the error that the brokers have for a topic.
func (r *kafkaReader) errorOf(ctx context.Context, topic string) error {
	meta, err := r.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return kafkaid.Cause(err)
	}
	for i := range meta.Topics {
		if meta.Topics[i].Name == topic {
			return meta.Topics[i].Error
		}
	}
	return errors.New("the broker's answer lacks it")
}

func (r *kafkaReader) brokers() string { return strings.Join(r.s.Brokers, ",") }

// begin starts to read the partitions that are not read yet. start applies to those that were never
// read.
func (r *kafkaReader) begin(ctx context.Context, start consume.Start) error {
	logs, err := r.logs(ctx, r.topics)
	if err == nil && r.q.OneCopy {
		logs, err = r.chooseCopies(ctx, logs)
	}
	if err != nil {
		return err
	}
	r.state.Lock()
	defer r.state.Unlock()
	logs = slices.DeleteFunc(logs, func(l consume.Log) bool { return r.partitions[idOf(l)] != nil })
	begun, err := r.locate(ctx, logs, r.at, start)
	r.sharing.Store(int64(len(r.partitions) + len(begun)))
	for id, p := range begun {
		r.partitions[id] = p
		ctx, cancel := context.WithCancel(r.ctx)
		p.fetcher.stop = cancel
		r.fetching.Go(func() {
			defer cancel()
			p.fetcher.run(ctx)
		})
	}
	return err
}

// locate returns the partitions of logs with the offset of each: its position in at, or else start.
func (r *kafkaReader) locate(
	ctx context.Context, logs []consume.Log, at map[partitionID]consume.Position, start consume.Start,
) (map[partitionID]*kafkaPartition, error) {
	ends, err := r.offsets(ctx, logs)
	if err != nil {
		return nil, err
	}
	var since map[partitionID]int64
	if start.Kind() == consume.StartSince {
		since, err = r.offsetsAt(ctx, logs, start.Time())
		if err != nil {
			return nil, err
		}
	}
	out := map[partitionID]*kafkaPartition{}
	for _, l := range logs {
		id := idOf(l)
		o, known := ends[id]
		if !known {
			if r.q.StopAtEnd {
				return nil, r.offsetError(id, errDeleted)
			}
			continue
		}
		f := &kafkaFetcher{
			r:      r,
			log:    l,
			offset: o.first,
			stopAt: -1,
		}
		if r.q.ByTime {
			f.turn = make(chan struct{}, 1)
			f.turn <- struct{}{}
		}
		switch from, saved := at[id]; {
		case saved:
			f.log.ID, f.offset = cmp.Or(from.ID, l.ID), int64(from.Next)
		case start.Kind() == consume.StartLive:
			f.offset = o.last
		case start.Kind() == consume.StartSince:
			f.offset = since[id]
			if f.offset < 0 { // all is older
				f.offset = o.last
			}
		}
		if r.q.StopAtEnd {
			f.stopAt = o.last
		}
		f.partition = &kafkaPartition{
			log:     f.log,
			next:    f.offset,
			end:     o.last,
			fetcher: f,
		}
		f.check(l.ID, o)
		out[id] = f.partition
	}
	return out, nil
}

// Next implements consume.Reader.
func (r *kafkaReader) Next(ctx context.Context) (*consume.Event, error) {
	for {
		if r.pending != nil {
			if e, err := r.takeEvent(); e != nil || err != nil {
				return e, err
			}
			continue
		}
		if e, err := r.takeEarliest(); e != nil || err != nil {
			return e, err
		}
		if r.gone != nil {
			return nil, r.gone
		}
		if r.q.StopAtEnd && r.holdsForAll(func(p *kafkaPartition) bool { return p.ended }) {
			return nil, io.EOF
		}
		if time.Since(r.looked) >= identityAge {
			r.lookAgain(ctx)
		}
		due := time.NewTimer(time.Until(r.looked.Add(identityAge)))
		select {
		case r.pending = <-r.batches:
		case <-due.C:
		case <-r.ctx.Done():
			return nil, fmt.Errorf("read Kafka at %s: the reader is closed", r.brokers())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		due.Stop()
	}
}

// takeEvent returns the next event of the pending batch. Neither event nor error: it has none.
func (r *kafkaReader) takeEvent() (*consume.Event, error) {
	b := r.pending
	if b.of != nil && b.of.left {
		r.pending = nil
		return nil, nil
	}
	if r.q.ByTime || b.err != nil || b.begin != nil || b.missed != nil || len(b.records) <= 1 {
		r.pending = nil
	}
	switch {
	case b.err != nil:
		if errors.Is(b.err, kafka.UnknownTopicOrPartition) {
			r.lookSoon() // it may have been deleted
		}
		r.noteInterruption(b.err)
		return nil, nil
	case b.begin != nil:
		r.state.Lock()
		r.partitions = b.begin
		r.state.Unlock()
		return nil, nil
	case b.missed != nil:
		r.notePosition(b, b.next)
		if r.q.ByTime {
			r.release(b.of)
		}
		if b.missed.Recreated && r.group != nil {
			r.group.forget(consume.Position{Log: b.log, Next: uint64(b.next)})
		}
		return nil, b.missed
	}
	if r.interrupted && r.q.OnResume != nil {
		r.q.OnResume()
	}
	r.interrupted = false
	if r.q.ByTime {
		r.hold(b)
		return nil, nil
	}
	if len(b.records) == 0 {
		r.notePosition(b, b.next)
		return nil, nil
	}
	e, err := b.first()
	r.drop(b)
	return e, err
}

// first returns the event of the first record. Neither event nor error: it is a tombstone.
func (b *kafkaBatch) first() (*consume.Event, error) {
	m := &b.records[0]
	if len(m.Value) == 0 {
		return nil, nil
	}
	at := consume.Position{Log: b.log, Next: uint64(m.Offset) + 1}
	e, err := fromKafka(m)
	if err != nil {
		return nil, &consume.RecordError{
			Position: at,
			Where:    fmt.Sprintf("topic %s, partition %d, offset %d", m.Topic, m.Partition, m.Offset),
			About:    aboutKey(m.Key),
			Err:      err,
		}
	}
	e.Position = at
	return e, nil
}

// drop removes the first record of a batch, and records the position of its partition.
func (r *kafkaReader) drop(b *kafkaBatch) {
	next := b.records[0].Offset + 1
	b.records = b.records[1:]
	if len(b.records) == 0 {
		next = b.next
	}
	r.notePosition(b, next)
}

// notePosition notes the position of a partition.
func (r *kafkaReader) notePosition(b *kafkaBatch, next int64) {
	r.state.Lock()
	defer r.state.Unlock()
	b.of.log = b.log
	b.of.next = next
	b.of.end = b.end
	b.of.ended = b.last && next == b.next
	r.at[idOf(b.log)] = consume.Position{Log: b.log, Next: uint64(next)}
}

func (r *kafkaReader) noteInterruption(err error) {
	r.interrupted = true
	if r.q.OnRetry != nil {
		r.q.OnRetry(err)
	}
}

// holdsForAll reports whether ok holds for all partitions. Before a group has assigned any, it does
// not.
func (r *kafkaReader) holdsForAll(ok func(*kafkaPartition) bool) bool {
	r.state.Lock()
	defer r.state.Unlock()
	for _, p := range r.partitions {
		if !ok(p) {
			return false
		}
	}
	return r.group == nil || r.group.hasJoined()
}

// CaughtUp implements consume.Reader.
func (r *kafkaReader) CaughtUp() bool {
	return r.pending == nil && len(r.hands) == 0 &&
		r.holdsForAll(func(p *kafkaPartition) bool { return p.left || p.next >= p.end })
}

// Positions implements consume.Reader.
func (r *kafkaReader) Positions() []consume.Position {
	r.state.Lock()
	defer r.state.Unlock()
	all := maps.Clone(r.at)
	for id, p := range r.partitions {
		all[id] = consume.Position{Log: p.log, Next: uint64(p.next)}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b consume.Position) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
	})
}

// Whole implements consume.Reader. No store goes with Kafka.
func (r *kafkaReader) Whole(_ context.Context, e *consume.Event) (*consume.Event, error) {
	return consume.WithoutStore(e)
}

// Close implements consume.Reader.
func (r *kafkaReader) Close() error {
	r.cancel()
	var err error
	if r.group != nil {
		err = r.group.leave()
	}
	r.fetching.Wait()
	r.conns.Close()
	return err
}

// lookAgain starts to read added topics and partitions, and ends the fetchers of deleted ones. It
// checks logs with another identity.
func (r *kafkaReader) lookAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	r.looked = time.Now()
	before := r.topics
	found, err := r.find(ctx)
	if err == nil && (len(found) > 0 || r.q.StopAtEnd) {
		r.topics = found
		if err = r.checkIdentities(ctx); err == nil && r.group == nil {
			err = r.begin(ctx, consume.Beginning())
		} else if err == nil && r.hasOtherTopics(before) { // the group itself detects added partitions
			err = r.rejoin(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		r.noteInterruption(err)
	}
}

// hasOtherTopics reports whether a group must join for other topics than before. A read to the end
// must notice a topic that is gone.
func (r *kafkaReader) hasOtherTopics(before map[string]int) bool {
	gone := false
	for topic := range before {
		_, exists := r.topics[topic]
		gone = gone || !exists
	}
	return gone && !r.q.StopAtEnd || len(r.topics) > len(before)
}

// lookSoon makes Next look up topics within identityPause.
func (r *kafkaReader) lookSoon() {
	if soon := time.Now().Add(identityPause - identityAge); soon.Before(r.looked) {
		r.looked = soon
	}
}

// checkIdentities ends the fetchers of deleted topics, and makes those of logs with another
// identity look.
func (r *kafkaReader) checkIdentities(ctx context.Context) error {
	logs, err := r.logs(ctx, r.topics)
	if err != nil {
		return err
	}
	ids := map[partitionID]string{}
	for _, l := range logs {
		ids[idOf(l)] = l.ID
	}
	r.state.Lock()
	defer r.state.Unlock()
	for id, p := range r.partitions {
		now, exists := ids[id]
		switch {
		case exists:
			p.absent = time.Time{}
			if now != p.log.ID {
				p.fetcher.due.Store(true)
			}
		case r.group != nil && !r.q.StopAtEnd:
		case !p.absent.IsZero() && time.Since(p.absent) > absentFor && r.q.StopAtEnd && !p.ended:
			// Records up to the requested end are missing. No error says where they went, and the
			// partition must not count as read.
			r.gone = fmt.Errorf("read topic %s, partition %d at %s to its end, at offset %d: %w",
				id.topic, id.index, r.brokers(), p.next, errDeleted)
		case !p.absent.IsZero() && time.Since(p.absent) > absentFor:
			p.fetcher.stop()
			delete(r.partitions, id) // at has its position
		default:
			if p.absent.IsZero() {
				p.absent = time.Now()
			}
			r.lookSoon()
		}
	}
	return nil
}
