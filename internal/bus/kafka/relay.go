package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/bus/subscription"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
)

// relayGroup is the prefix of the consumer group whose offsets are a relay's cursor.
const relayGroup = "kubecdc-relay-"

// relaySubscription is the subscription of a relay that reads topics of Kafka.
type relaySubscription struct {
	start   driver.Start
	topics  *kafkaconfig.Topics
	brokers string // for the log
	log     *slog.Logger
	window  publish.Window
	bus     *fromkafka.Kafka
	client  *kafka.Client
	conns   *kafkanet.Network // the client's
	reader  *subscription.Reading
	fresh   bool // the group has no offsets

	partitions atomic.Pointer[map[string]int] // by topic
}

// Subscribe implements driver.Reader.
func (o Opener) Subscribe(r *driver.Relaying) (driver.RelaySubscription, error) {
	d, err := NewDialer(o.Config)
	if err != nil {
		return nil, fmt.Errorf("bus.kafka: %w", err)
	}
	if r.Cluster == "" && strings.Contains(o.Topic, "{cluster}") {
		return nil,
			driver.WithClusterAdvice(fmt.Errorf("bus.kafka: topic %q: the name of the cluster is not known", o.Topic),
				r.Cluster)
	}
	topics, err := kafkaconfig.NewTopics(o.Topic, cmp.Or(r.Cluster, "-"))
	if err != nil {
		return nil, fmt.Errorf("bus.kafka: %w", err)
	}
	dead := strings.ReplaceAll(r.DeadLetter, "{cluster}", r.Cluster)
	s := &relaySubscription{
		start:   r.Start,
		topics:  topics,
		brokers: strings.Join(o.Brokers, ","),
		log:     r.Log.With("relay", r.Name),
	}
	s.conns = kafkanet.New(kafkanet.Options{
		ClientID:   d.ClientID,
		Dial:       d.DialFunc,
		Mechanism:  d.SASLMechanism,
		OnThrottle: s.noteThrottle,
	})
	s.client = &kafka.Client{Addr: kafka.TCP(o.Brokers...), Transport: kafkanet.NewCluster(s.conns, o.Brokers)}
	s.bus = &fromkafka.Kafka{
		Brokers:    o.Brokers,
		Dialer:     d,
		Group:      relayGroup + r.Name,
		OnThrottle: s.noteThrottle,
		Match:      func(topic string) bool { return topic != dead && topics.Match(topic, nil) },
	}
	return s, nil
}

// noteThrottle logs the first pause of each minute that a broker names because of a quota.
func (s *relaySubscription) noteThrottle(addr string, until time.Time, _ time.Duration) {
	if suppressed, ok := s.window.First("throttled"); ok {
		s.log.Warn("a broker limits reading by a quota: nothing is read from it for a while", "broker", addr,
			"pause", time.Until(until).Round(time.Millisecond), "suppressed", suppressed)
	}
}

// Open implements driver.Subscription. It finds the topics and joins the group.
func (s *relaySubscription) Open(ctx context.Context) error {
	if _, err := s.find(ctx); err != nil {
		return driver.Transient(err)
	}
	q := consume.Query{
		OnRetry: func(err error) {
			if suppressed, ok := s.window.First("read"); ok {
				s.log.Warn("cannot read the bus, retrying", "brokers", s.brokers, "err", err, "suppressed", suppressed)
			}
		},
		OnResume: func() { s.log.Info("reading resumes where it was interrupted", "group", s.bus.Group) },
	}
	status, err := s.Status(ctx)
	if isTemporary(err) {
		// on a cluster that has had no group before, the first request makes the place for their
		// offsets
		return driver.Transient(err)
	}
	if err == nil {
		s.fresh = !slices.ContainsFunc(status, func(p driver.CursorStatus) bool {
			return p.Problem != nothingDelivered
		})
	}
	if s.start == driver.Beginning {
		q.Start = consume.Beginning()
	}
	r, err := s.bus.Read(ctx, q)
	if errors.Is(err, consume.ErrNoStream) {
		s.start = driver.Beginning // a live start would skip no record
		err = fmt.Errorf("no topic matches %q: create it, or set bus.kafka.create so that the agent creates it",
			s.topics)
	}
	if err != nil {
		return driver.Transient(err)
	}
	s.log.Info("relay starts", "group", s.bus.Group, "start", string(cmp.Or(s.start, driver.Live)))
	s.reader = subscription.NewReading(r, false)
	return nil
}

// find looks up the topics and their numbers of partitions.
func (s *relaySubscription) find(ctx context.Context) (map[string]int, error) {
	meta, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, fmt.Errorf("look up topics at %s: %w", s.brokers, kafkaid.Cause(err))
	}
	found := map[string]int{}
	for _, t := range meta.Topics {
		if !t.Internal && t.Error == nil && len(t.Partitions) > 0 && s.bus.Match(t.Name) {
			found[t.Name] = len(t.Partitions)
		}
	}
	s.partitions.Store(&found)
	return found, nil
}

func (s *relaySubscription) Next(ctx context.Context) (*driver.Record, error) {
	r, err := s.reader.Next(ctx)
	if err != nil {
		return nil, err
	}
	r.Topic = true
	if e := r.Event; e != nil && e.Data == nil {
		// Every partition of every topic for objects of its resource has a copy; of the progress of
		// an agent, every partition of all topics. With {namespace}, progress goes to all of these
		// topics only once an hour. A new topic begins with copies of what the others had before.
		// They may have delivered it long ago.
		r.Copies, r.Sparse = 0, e.Opening || e.Type == consume.TypeProgress && s.topics.Varies()
		resource := resourceOf(e)
		for name, n := range *s.partitions.Load() {
			if name == r.Name || s.topics.Match(name, resource) {
				r.Copies += n
			}
		}
	}
	return r, nil
}

// resourceOf returns the resource of an event; nil for the progress of an agent, which is about
// many.
func resourceOf(e *consume.Event) *object.Resource {
	if e.Progress != nil {
		return nil
	}
	return &object.Resource{Group: e.Group(), Name: e.Resource}
}

// Note implements driver.Noter. The offsets of a group have no place for it.
func (s *relaySubscription) Note() (note []byte, known bool) { return nil, s.fresh }

// SetNote implements driver.Noter.
func (s *relaySubscription) SetNote([]byte) {}

// Save implements driver.Subscription. If another relay of the group has a partition by now, it may
// move that back, and records come again.
func (s *relaySubscription) Save(ctx context.Context, marks []driver.Mark) error {
	at := make([]consume.Position, len(marks))
	for i, m := range marks {
		at[i] = consume.Position{Log: m.Log, Next: m.Position + 1}
	}
	group, ok := s.reader.Reader.(fromkafka.Committer)
	if !ok {
		return errors.New("the source reads without a group")
	}
	return group.Commit(ctx, at...)
}

// Behind implements driver.Subscription. The group has the marks, except those of the last second.
func (s *relaySubscription) Behind(ctx context.Context, _ []driver.Mark) (n uint64, err error) {
	all, err := s.Status(ctx)
	for _, p := range all {
		n += p.Behind
	}
	return n, err
}

func (*relaySubscription) Ready() error { return nil }

func (s *relaySubscription) Close() error {
	defer s.conns.Close()
	if s.reader == nil {
		return nil
	}
	return s.reader.Close()
}

// Status implements driver.RelaySubscription, with a position for each partition.
func (s *relaySubscription) Status(ctx context.Context) ([]driver.CursorStatus, error) {
	partitions, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	fetch := &kafka.OffsetFetchRequest{GroupID: s.bus.Group, Topics: map[string][]int{}}
	list := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{}}
	for topic, n := range partitions {
		for p := range n {
			fetch.Topics[topic] = append(fetch.Topics[topic], p)
			list.Topics[topic] = append(list.Topics[topic], kafka.FirstOffsetOf(p), kafka.LastOffsetOf(p))
		}
	}
	// Read the group's offsets first: otherwise a delivery in between would look like an offset
	// beyond the end.
	held, err := s.client.OffsetFetch(ctx, fetch)
	if err == nil {
		err = held.Error
	}
	if err != nil {
		return nil,
			fmt.Errorf("look up the offsets of group %s (check that the user may read it): %w", s.bus.Group,
				kafkaid.Cause(err))
	}
	there, err := s.client.ListOffsets(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("look up offsets: %w", kafkaid.Cause(err))
	}
	committed := map[consume.Log]int64{}
	for topic, ps := range held.Topics {
		for _, p := range ps {
			if p.Error != nil {
				return nil,
					fmt.Errorf("look up the offset of group %s in topic %s, partition %d: %w", s.bus.Group, topic,
						p.Partition, p.Error)
			}
			committed[consume.Log{Name: topic, Partition: p.Partition}] = p.CommittedOffset
		}
	}
	var out []driver.CursorStatus
	for _, topic := range slices.Sorted(maps.Keys(there.Topics)) {
		ps := there.Topics[topic]
		slices.SortFunc(ps, func(a, b kafka.PartitionOffsets) int { return cmp.Compare(a.Partition, b.Partition) })
		for _, p := range ps {
			if p.Error != nil {
				return nil, fmt.Errorf("look up offsets of topic %s, partition %d: %w", topic, p.Partition, p.Error)
			}
			at, ok := committed[consume.Log{Name: topic, Partition: p.Partition}]
			if !ok {
				at = -1
			}
			out = append(out, cursorStatus(topic, p, at))
		}
	}
	return out, nil
}

// isTemporary reports whether a broker has refused a request that may succeed when it is repeated.
func isTemporary(err error) bool {
	var refusal kafka.Error
	return errors.As(err, &refusal) && refusal.Temporary()
}

const nothingDelivered = "nothing has been delivered from it yet"

// cursorStatus returns the status of a partition; next is the group's next offset to deliver,
// negative: none.
func cursorStatus(topic string, p kafka.PartitionOffsets, next int64) driver.CursorStatus {
	s := driver.CursorStatus{Place: fmt.Sprintf("%s/%d", topic, p.Partition), At: uint64(max(next, 0))}
	switch {
	case next < 0:
		s.Problem = nothingDelivered
	case next > p.LastOffset:
		s.Problem = "the partition ends before it, because its topic was recreated: the relay starts over"
		next = p.FirstOffset
	case next < p.FirstOffset:
		s.Problem = fmt.Sprintf("%d records were removed before they were delivered", p.FirstOffset-next)
	}
	s.Behind = uint64(p.LastOffset - max(next, p.FirstOffset))
	return s
}

// Source implements driver.Reader.
func (o Opener) Source(r *driver.Reading) (consume.Source, func(error) error, error) {
	dialer, err := NewDialer(o.Config)
	if err != nil {
		return nil, nil, fmt.Errorf("bus.kafka: %w", err)
	}
	match, err := kafkaconfig.MatchOf(o.Topic, r.Cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("bus.kafka.topic: %w", err)
	}
	dead, err := kafkaconfig.MatchOf(cmp.Or(r.DeadLetter, kafkaconfig.DefaultDeadTopic), r.Cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("deadLetter.topic: %w", err)
	}
	if topic := o.Topic; !strings.Contains(topic, "{") {
		match, dead = func(name string) bool { return name == topic }, func(string) bool { return false }
	}
	return &topicSource{
		Kafka: fromkafka.Kafka{
			Brokers: o.Brokers,
			Dialer:  dialer,
			Cluster: r.Cluster,
			Match: func(topic string) bool {
				return match(topic) && !dead(topic)
			},
		},
		template: cmp.Or(o.Topic, kafkaconfig.DefaultTopic),
	}, func(err error) error { return err }, nil
}

// Logs implements driver.Reader.
func (o Opener) Logs(ctx context.Context, r *driver.Reading) ([]consume.Log, error) {
	source, _, err := o.Source(r)
	if err != nil {
		return nil, err
	}
	reader, err := source.Read(ctx, consume.Query{})
	if err != nil {
		return nil, nil //nolint:nilerr // see driver.Reader
	}
	defer func() { _ = reader.Close() }() // no data to lose
	var logs []consume.Log
	for _, p := range reader.Positions() {
		logs = append(logs, p.Log)
	}
	return logs, nil
}

// CopiesOf implements driver.Partitioned: all partitions of every topic for objects of the event's
// resource have a copy, and all partitions of the agent's progress. With {namespace} in the
// template, most progress events are only in some of them: there each copy counts as complete.
func (o Opener) CopiesOf(logs []consume.Position, e *consume.Event) int {
	topics, err := kafkaconfig.NewTopics(o.Topic, e.Cluster)
	if err != nil || topics.Varies() && e.Type == consume.TypeProgress {
		return 1
	}
	resource := resourceOf(e)
	n := 0
	for _, p := range logs {
		if p.Name == e.Position.Name || topics.Match(p.Name, resource) {
			n++
		}
	}
	return n
}
