package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/object"
	kafkabus "github.com/kubecdc/kubecdc/internal/publish/kafka"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// GroupPrefix begins the name of the consumer group whose offsets are a relay's cursor.
const GroupPrefix = "kubecdc-relay-"

const (
	fetchBytes    = 4 << 20 // asked for at a time, of each partition
	fetchAhead    = 64      // messages that wait to be read
	topicInterval = time.Minute
	// sessionTimeout is after how long the group gives away the partitions of a relay that has died.
	sessionTimeout = 10 * time.Second
)

// KafkaConfig says what a relay reads from Kafka.
type KafkaConfig struct {
	Relay   string // its name, of which the consumer group's is made
	Brokers []string
	// Topic is the template that the agent's topics are made of: "kubecdc.{cluster}", "kubecdc.{cluster}.{resource}". All
	// topics that it can have made are read.
	Topic   string
	Cluster string // {cluster}
	Except  string // a topic that is not read: that of the dead letters; {cluster} allowed
	Start   Start  // "": Live

	Dialer *kafka.Dialer // nil: neither TLS nor SASL
}

// Kafka are the topics of a Kafka as the source of a relay.
type Kafka struct {
	cfg    KafkaConfig
	log    *slog.Logger
	notes  notes
	topics *kafkabus.Topics
	client *kafka.Client
	pool   *kafka.Transport // the client's
	group  string

	reading    atomic.Pointer[reading]
	problem    atomic.Pointer[error] // why it is not open
	partitions map[string]int        // by topic; Next's, as all below
	looked     time.Time             // when topics were looked up
	beyond     int                   // how often in a row offsets were found beyond the end of their partitions
	next       map[logID]uint64
	missed     []error
	pending    *kafka.Message      // has been fetched, and an error goes before it
	asked      map[logID]time.Time // when a hole was asked about
}

// reading is one time that the topics are read, from the group's offsets on.
type reading struct {
	number int // Place.Reading of its records
	reader *kafka.Reader
	began  map[logID]int64 // where it began
	over   atomic.Bool     // what was read is beyond the end of its partition: Next begins anew
}

// own are the marks of this reading. Those of an earlier one are not to be saved any more: the partition may be another one
// by now, and what is not saved comes again.
func (r *reading) own(marks []Mark) []Mark {
	return slices.DeleteFunc(slices.Clone(marks), func(m Mark) bool { return m.Reading != r.number })
}

// NewKafka checks the configuration and returns a source that Open connects.
func NewKafka(cfg KafkaConfig, log *slog.Logger) (*Kafka, error) {
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("no brokers are given")
	}
	if cfg.Relay == "" || strings.Trim(cfg.Relay, nameBytes) != "" {
		return nil, fmt.Errorf("relay name %q: must be made of a-z, A-Z, 0-9, - and _", cfg.Relay)
	}
	if cfg.Cluster == "" && strings.Contains(cfg.Topic, "{cluster}") {
		return nil, fmt.Errorf("topic %q: the name of the cluster is not known", cfg.Topic)
	}
	topics, err := kafkabus.NewTopics(cfg.Topic, cmp.Or(cfg.Cluster, "-"))
	if err != nil {
		return nil, err
	}
	cfg.Except = strings.ReplaceAll(cfg.Except, "{cluster}", cfg.Cluster)
	if cfg.Start == "" {
		cfg.Start = Live
	}
	if cfg.Dialer == nil {
		cfg.Dialer = &kafka.Dialer{Timeout: apiTimeout, DualStack: true}
	}
	pool := &kafka.Transport{
		ClientID: cfg.Dialer.ClientID, Dial: cfg.Dialer.DialFunc, DialTimeout: cfg.Dialer.Timeout, TLS: cfg.Dialer.TLS,
		SASL: cfg.Dialer.SASLMechanism, MetadataTTL: time.Second,
	}
	return &Kafka{
		cfg: cfg, log: log.With("relay", cfg.Relay), topics: topics, pool: pool, group: GroupPrefix + cfg.Relay,
		client: &kafka.Client{Addr: kafka.TCP(cfg.Brokers...), Timeout: apiTimeout, Transport: pool},
		next:   map[logID]uint64{}, asked: map[logID]time.Time{},
	}, nil
}

// Open implements Source.
func (s *Kafka) Open(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := s.begin(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		s.problem.Store(&err)
		s.note("open", err)
		if err := backoff(ctx, failures); err != nil {
			return err
		}
	}
}

func (s *Kafka) note(what string, err error) {
	if suppressed, ok := s.notes.first(what); ok {
		s.log.Warn("bus cannot be read at present, trying on", "brokers", strings.Join(s.cfg.Brokers, ","), "doing", what, "err", err, "suppressed", suppressed)
	}
}

// begin finds topics and cursor, and makes a reader that joins the group.
func (s *Kafka) begin(ctx context.Context) error {
	partitions, err := s.find(ctx)
	if err != nil {
		return err
	}
	if len(partitions) == 0 {
		s.cfg.Start = Beginning // there is nothing that a live start would leave out
		return fmt.Errorf("no topic is there yet for %q: the agent makes it where it is told to (bus.kafka.create), or create it", s.cfg.Topic)
	}
	began, err := s.settle(ctx, partitions)
	if err != nil {
		return err
	}
	topics := make([]string, 0, len(partitions))
	for topic := range partitions {
		topics = append(topics, topic)
	}
	s.cfg.Start = Beginning // it has begun: what has no offset from now on comes after that
	s.partitions, s.looked = partitions, time.Now()
	r := &reading{number: 1, began: began}
	if before := s.reading.Load(); before != nil {
		r.number = before.number + 1
	}
	r.reader = kafka.NewReader(kafka.ReaderConfig{
		Brokers: s.cfg.Brokers, GroupID: s.group, GroupTopics: topics, Dialer: s.cfg.Dialer,
		QueueCapacity: fetchAhead, MinBytes: 1, MaxBytes: fetchBytes, MaxWait: time.Second,
		StartOffset: kafka.FirstOffset, WatchPartitionChanges: true,
		SessionTimeout: sessionTimeout, ReadBackoffMax: time.Second, MaxAttempts: 3,
	})
	s.reading.Store(r)
	return nil
}

// find looks up the topics, with how many partitions each has.
func (s *Kafka) find(ctx context.Context) (map[string]int, error) {
	meta, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, fmt.Errorf("look up topics at %s: %w", strings.Join(s.cfg.Brokers, ","), err)
	}
	found := map[string]int{}
	for _, t := range meta.Topics {
		if !t.Internal && t.Error == nil && len(t.Partitions) > 0 && t.Name != s.cfg.Except && s.topics.Match(t.Name, nil) {
			found[t.Name] = len(t.Partitions)
		}
	}
	return found, nil
}

// Next implements Source.
func (s *Kafka) Next(ctx context.Context) (*Record, error) {
	for failures := 0; ; {
		if len(s.missed) > 0 {
			err := s.missed[0]
			s.missed = s.missed[1:]
			return nil, err
		}
		m := s.pending
		if s.pending = nil; m == nil {
			if s.reading.Load().over.Load() {
				if err := s.reopen(ctx); err != nil {
					return nil, err
				}
			}
			if time.Since(s.looked) > topicInterval {
				if err := s.lookAgain(ctx); err != nil {
					return nil, err
				}
			}
			limited, cancel := context.WithTimeout(ctx, checkInterval)
			fetched, err := s.reading.Load().reader.FetchMessage(limited)
			cancel()
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case errors.Is(err, context.DeadlineExceeded):
				continue
			case errors.Is(err, io.EOF):
				return nil, fmt.Errorf("read group %s: %w", s.group, err)
			case err != nil:
				s.note("read", err)
				failures++
				if err := backoff(ctx, failures); err != nil {
					return nil, err
				}
				continue
			}
			failures = 0
			if m = &fetched; s.hole(ctx, m) {
				s.pending = m
				continue
			}
		}
		s.next[logID{m.Topic, m.Partition}] = uint64(m.Offset) + 1
		return s.record(m), nil
	}
}

// hole tells whether records before m are gone which have not been read. Offsets that were never given to a record, or whose
// record compaction has removed, leave holes too: those behind the oldest record that there is are none.
func (s *Kafka) hole(ctx context.Context, m *kafka.Message) bool {
	id := logID{m.Topic, m.Partition}
	expected, ok := s.next[id]
	if !ok || uint64(m.Offset) <= expected || time.Since(s.asked[id]) < checkInterval {
		return false
	}
	s.asked[id] = time.Now()
	there, err := s.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{m.Topic: {kafka.FirstOffsetOf(m.Partition)}}})
	if err != nil || len(there.Topics[m.Topic]) == 0 || there.Topics[m.Topic][0].Error != nil {
		s.note("look up offsets", err)
		return false
	}
	first := there.Topics[m.Topic][0].FirstOffset
	if first <= int64(expected) {
		return false
	}
	s.missed = append(s.missed, missedOffsets(id, expected, min(uint64(first), uint64(m.Offset))))
	s.next[id] = uint64(m.Offset)
	return true
}

// lookAgain begins anew where there are other topics than before.
func (s *Kafka) lookAgain(ctx context.Context) error {
	s.looked = time.Now()
	found, err := s.find(ctx)
	if err != nil {
		s.note("look up topics", err)
		return nil
	}
	same := len(found) == len(s.partitions)
	for topic := range found {
		_, known := s.partitions[topic]
		same = same && known
	}
	if same || len(found) == 0 {
		if same {
			s.partitions = found
		}
		return nil
	}
	return s.reopen(ctx)
}

// reopen leaves the group and begins anew, where it has come to.
func (s *Kafka) reopen(ctx context.Context) error {
	if err := s.reading.Load().reader.Close(); err != nil {
		s.note("close", err)
	}
	return s.Open(ctx)
}

func (s *Kafka) record(m *kafka.Message) *Record {
	r := &Record{
		Place:    Place{Name: m.Topic, Partition: m.Partition, Reading: s.reading.Load().number},
		Position: uint64(m.Offset), Copies: 1,
	}
	if len(m.Value) > 0 {
		r.Event, r.Err = fromKafka(m)
	}
	if r.Event != nil && r.Event.Stream != nil {
		r.Copies = s.copies(m.Topic, r.Event)
		// Once an hour it goes to all topics, else to those alone in which something has happened.
		r.Sparse = r.Event.Type == consume.TypeProgress && s.topics.Varies()
	}
	return r
}

// copies are how many partitions have a copy of an event about the stream: those of every topic that objects of its resource
// go to, which with {namespace} in the template are many.
func (s *Kafka) copies(topic string, e *consume.Event) int {
	resource := &object.Resource{Group: e.Group(), Name: e.Resource}
	n := 0
	for name, partitions := range s.partitions {
		if name == topic || s.topics.Match(name, resource) {
			n += partitions
		}
	}
	return n
}

// fromKafka reads an event as the CloudEvents Kafka binding 1.0.2 has it. Its headers are those of NATS but for their
// prefix, and are not percent-encoded; datacontenttype is the content-type.
func fromKafka(m *kafka.Message) (*consume.Event, error) {
	header := make(map[string][]string, len(m.Headers)+1)
	media, binary := "", false
	for _, h := range m.Headers {
		name, value := strings.ToLower(h.Key), string(h.Value)
		if attribute, ok := strings.CutPrefix(name, "ce_"); ok {
			header["ce-"+attribute] = []string{strings.ReplaceAll(value, "%", "%25")}
			binary = binary || attribute == "specversion"
		} else if name == "content-type" {
			media = value
			header[name] = []string{value}
		}
	}
	if binary && media != "" {
		header["ce-datacontenttype"] = []string{strings.ReplaceAll(media, "%", "%25")}
	}
	return consume.FromMessage(header, m.Value)
}

// Save implements Source. A partition that has gone to another relay of the group by now is moved back by it at most:
// records come again.
func (s *Kafka) Save(ctx context.Context, marks []Mark) error {
	r := s.reading.Load()
	marks = r.own(marks)
	if len(marks) == 0 {
		return nil
	}
	ms := make([]kafka.Message, len(marks))
	for i, m := range marks {
		ms[i] = kafka.Message{Topic: m.Name, Partition: m.Partition, Offset: int64(m.Position)}
	}
	// By the reader of these marks: had another one been begun meanwhile, this one would be closed, and refuse.
	return r.reader.CommitMessages(ctx, ms...)
}

// Ready implements Source.
func (s *Kafka) Ready() error {
	if s.reading.Load() == nil {
		if p := s.problem.Load(); p != nil {
			return *p
		}
		return fmt.Errorf("not connected to %s", strings.Join(s.cfg.Brokers, ","))
	}
	return nil
}

// Close implements Source.
func (s *Kafka) Close() error {
	var err error
	if r := s.reading.Load(); r != nil {
		err = r.reader.Close()
	}
	s.pool.CloseIdleConnections()
	return err
}
