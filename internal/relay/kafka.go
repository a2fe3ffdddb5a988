package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// GroupPrefix begins the name of the consumer group whose offsets are a relay's cursor.
const GroupPrefix = "kubecdc-relay-"

// KafkaConfig says what a relay reads from Kafka.
type KafkaConfig struct {
	Relay   string // its name, of which the consumer group's is made
	Brokers []string
	Topics  Topics
	Except  string // a topic that is not read: that of the dead letters
	Start   Start  // "": Live

	Dialer *kafka.Dialer // nil: neither TLS nor SASL
}

// Topics are the topics that the agent's template can have made. String returns the template. Match reports whether a topic is one of them,
// for a resource if r is not nil. Varies reports whether the objects of one resource go to several.
type Topics interface {
	fmt.Stringer
	Match(topic string, r *object.Resource) bool
	Varies() bool
}

// Kafka are the topics of a Kafka as the source of a relay.
type Kafka struct {
	cfg    KafkaConfig
	log    *slog.Logger
	notes  notes
	bus    *consume.Kafka
	client *kafka.Client
	pool   *kafka.Transport // the client's

	reader     atomic.Pointer[reading]
	problem    atomic.Pointer[error]          // why it is not open
	partitions atomic.Pointer[map[string]int] // by topic
}

// NewKafka checks the configuration and returns a source that Open connects.
func NewKafka(cfg KafkaConfig, log *slog.Logger) (*Kafka, error) {
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("no brokers are given")
	}
	if cfg.Relay == "" || strings.Trim(cfg.Relay, nameBytes) != "" {
		return nil, fmt.Errorf("relay name %q: must be made of a-z, A-Z, 0-9, - and _", cfg.Relay)
	}
	if cfg.Start == "" {
		cfg.Start = Live
	}
	d := cfg.Dialer
	if d == nil {
		d = &kafka.Dialer{Timeout: apiTimeout, DualStack: true}
	}
	pool := &kafka.Transport{
		ClientID: d.ClientID, Dial: d.DialFunc, DialTimeout: d.Timeout, TLS: d.TLS, SASL: d.SASLMechanism, MetadataTTL: time.Second,
	}
	s := &Kafka{
		cfg: cfg, log: log.With("relay", cfg.Relay), pool: pool,
		client: &kafka.Client{Addr: kafka.TCP(cfg.Brokers...), Timeout: apiTimeout, Transport: pool},
	}
	s.bus = &consume.Kafka{Brokers: cfg.Brokers, Dialer: d, Match: s.reads, Group: GroupPrefix + cfg.Relay}
	return s, nil
}

// reads reports whether a topic may be the agent's.
func (s *Kafka) reads(topic string) bool {
	return topic != s.cfg.Except && s.cfg.Topics.Match(topic, nil)
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
		case errors.Is(err, consume.ErrNoStream):
			s.cfg.Start = Beginning // there is nothing that a live start would leave out
			err = fmt.Errorf("no topic is there yet for %q: the agent makes it where it is told to (bus.kafka.create), or create it", s.cfg.Topics)
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

// begin finds the topics and joins the group.
func (s *Kafka) begin(ctx context.Context) error {
	if _, err := s.find(ctx); err != nil {
		return err
	}
	q := consume.Query{
		OnRetry: func(err error) { s.note("read", err) },
		OnResume: func() {
			s.log.Info("reading goes on where it was interrupted", "group", s.bus.Group)
		},
	}
	if s.cfg.Start == Beginning {
		q.Start = consume.Beginning()
	}
	r, err := s.bus.Read(ctx, q)
	if err != nil {
		return err
	}
	s.log.Info("relay begins", "group", s.bus.Group, "start", string(s.cfg.Start))
	s.reader.Store(newReading(r, false, nil))
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
		if !t.Internal && t.Error == nil && len(t.Partitions) > 0 && s.reads(t.Name) {
			found[t.Name] = len(t.Partitions)
		}
	}
	s.partitions.Store(&found)
	return found, nil
}

// Next implements Source.
func (s *Kafka) Next(ctx context.Context) (*Record, error) {
	r, err := s.reader.Load().next(ctx)
	if err != nil {
		return nil, err
	}
	r.Topic = true
	if r.Event != nil && r.Event.Stream != nil {
		r.Copies = s.copies(r.Name, r.Event)
		// Once an hour it goes to all topics, else to those alone in which something has happened.
		r.Sparse = r.Event.Type == consume.TypeProgress && s.cfg.Topics.Varies()
	}
	return r, nil
}

// copies are how many partitions have a copy of an event about the stream: those of every topic that objects of its resource
// go to, which with {namespace} in the template are many.
func (s *Kafka) copies(topic string, e *consume.Event) int {
	resource := &object.Resource{Group: e.Group(), Name: e.Resource}
	n := 0
	for name, partitions := range *s.partitions.Load() {
		if name == topic || s.cfg.Topics.Match(name, resource) {
			n += partitions
		}
	}
	return n
}

// Save implements Source. A partition that has gone to another relay of the group by now is moved back by it at most:
// records come again.
func (s *Kafka) Save(ctx context.Context, marks []Mark) error {
	at := make([]consume.Position, len(marks))
	for i, m := range marks {
		at[i] = consume.Position{Log: m.Log, Next: m.Position + 1}
	}
	group, ok := s.reader.Load().Reader.(consume.Committer)
	if !ok {
		return errors.New("the source reads without a group")
	}
	return group.Commit(ctx, at...)
}

// Ready implements Source.
func (s *Kafka) Ready() error {
	if s.reader.Load() == nil {
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
	if r := s.reader.Load(); r != nil {
		err = r.Close()
	}
	s.pool.CloseIdleConnections()
	return err
}
