package world

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// Kafka is a topic that the agent creates. Tests read it partition by partition with kafka-go, and
// without a consumer group, to compare the log itself.
type Kafka struct {
	*kafka.Cluster
	Brokers        []string // The addresses in the agent's configuration.
	Topic          string
	Template       string // Of the topics, in the agent's configuration. Empty: that of Topic.
	PartitionCount int
	More           string // More of bus.kafka, YAML as in a flow mapping.
	Settings       string // Settings of the topic, in the same form.
}

// KafkaTopic is the topic of an agent that is configured with `kubecdc.{cluster}`.
const KafkaTopic = "kubecdc." + ClusterName

// StartKafka runs brokers until the test ends, or skips the test if there is no Kafka.
func StartKafka(t testing.TB, o kafka.Options) *Kafka {
	t.Helper()
	c := kafka.Start(t, o)
	return &Kafka{
		Cluster:        c,
		Brokers:        c.Brokers(),
		Topic:          KafkaTopic,
		PartitionCount: 3,
	}
}

// KafkaNodes returns the number of brokers in the environment variable NODES, by default 1.
func KafkaNodes(t testing.TB) int { return int(EnvUint(t, "NODES", 1)) }

// Config returns the configuration of an agent that creates the topic.
func (k *Kafka) Config() string {
	more := ""
	if k.More != "" {
		more = ", " + k.More
	}
	return fmt.Sprintf(
		"kafka: {brokers: [%s], topic: %q, create: {partitions: %d, replicationFactor: %d, config: {%s}}%s}",
		`"`+strings.Join(k.Brokers, `", "`)+`"`, cmp.Or(k.Template, "kubecdc.{cluster}"), k.PartitionCount,
		min(3, k.Nodes()), k.Settings, more)
}

// Kill implements Server.
func (k *Kafka) Kill() { k.Node(0).Kill() }

// Start implements Server.
func (k *Kafka) Start(t testing.TB) {
	t.Helper()
	if err := k.Node(0).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Freeze implements Server.
func (k *Kafka) Freeze(t testing.TB) {
	t.Helper()
	if err := k.Node(0).Pause(); err != nil {
		t.Fatal(err)
	}
}

// Thaw implements Server.
func (k *Kafka) Thaw(t testing.TB) {
	t.Helper()
	if err := k.Node(0).Continue(); err != nil {
		t.Fatal(err)
	}
}

// laneOf returns the partition to which Java's producers would assign the object.
func (k *Kafka) laneOf(key oracle.ObjectKey) int {
	plural, group := key.Split()
	namespace := key.Namespace
	if namespace == "" {
		namespace = "_"
	}
	partitions := make([]int, k.PartitionCount)
	for i := range partitions {
		partitions[i] = i
	}
	text := strings.Join([]string{ClusterName, oracle.CoreGroup(group), plural, namespace, key.Name}, "/")
	return kafkago.Murmur2Balancer{Consistent: true}.Balance(kafkago.Message{Key: []byte(text)}, partitions...)
}

// Read reads each partition.
func (k *Kafka) Read(t testing.TB, r *oracle.Reader) *Stream {
	t.Helper()
	s := newStream()
	s.laneOf, s.Lanes = k.laneOf, func() int { return k.PartitionCount }
	for partition := range k.PartitionCount {
		own := *r // Not safe for concurrent use.
		last := int64(-1)
		s.Run(t, func(ctx context.Context) error {
			return k.consume(ctx, k.Topic, partition, func(m kafkago.Message) {
				if m.Offset != last+1 { // Offsets have no gaps: there is no compaction and no transaction.
					s.add(oracle.Record{Lane: partition, Position: uint64(m.Offset) + 1, Problems: []string{
						fmt.Sprintf("partition %d goes from offset %d to %d", partition, last, m.Offset),
					}}, 0)
				}
				last = m.Offset
				s.add(own.Read(kafkaMessage(m, partition)), len(m.Value))
			})
		})
		dead := *r
		s.Run(t, func(ctx context.Context) error {
			return k.consume(ctx, k.Topic+".dead", partition, func(m kafkago.Message) {
				s.Bury(dead.ReadLetter(kafkaMessage(m, partition)))
			})
		})
	}
	s.Body = func(ctx context.Context, lane int, position uint64) ([]byte, error) {
		reader := k.reader(k.Topic, lane)
		defer reader.Close()
		if err := reader.SetOffset(int64(position) - 1); err != nil {
			return nil, err
		}
		m, err := reader.ReadMessage(ctx)
		return kafkaMessage(m, lane).Body, err
	}
	return s
}

func (k *Kafka) reader(topic string, partition int) *kafkago.Reader {
	return kafkago.NewReader(kafkago.ReaderConfig{
		Brokers:        k.Inside(),
		Topic:          topic,
		Partition:      partition,
		MinBytes:       1,
		MaxBytes:       16 << 20,
		MaxWait:        200 * time.Millisecond,
		ReadBackoffMin: 20 * time.Millisecond,
		ReadBackoffMax: 200 * time.Millisecond,
		Dialer:         &kafkago.Dialer{Timeout: 3 * time.Second},
	})
}

// consume reads a partition until ctx ends, with a new reader after each error: tests stop and
// restart brokers.
func (k *Kafka) consume(ctx context.Context, topic string, partition int, take func(kafkago.Message)) error {
	next := int64(0)
	for ctx.Err() == nil {
		if err := k.consumeFrom(ctx, topic, partition, &next, take); ctx.Err() == nil {
			_ = wait.For(ctx, 200*time.Millisecond, func() error { return err }) // Wait before the next attempt.
		}
	}
	return context.Cause(ctx)
}

func (k *Kafka) consumeFrom(
	ctx context.Context, topic string, partition int, next *int64, take func(kafkago.Message),
) error {
	if _, err := k.Partitions(ctx, topic); err != nil {
		return err // The agent has not created the topic yet.
	}
	reader := k.reader(topic, partition)
	defer reader.Close()
	if err := reader.SetOffset(*next); err != nil {
		return err
	}
	for {
		// The timeout ends a reader that keeps using a stopped broker.
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		m, err := reader.ReadMessage(attempt)
		cancel()
		if err != nil {
			return err
		}
		if m.Offset >= *next {
			*next = m.Offset + 1
			take(m)
		}
	}
}

// kafkaMessage returns a record in structured mode, whatever its mode on the bus.
func kafkaMessage(m kafkago.Message, partition int) oracle.Message {
	header := make(map[string][]string)
	attributes := make(map[string]string)
	for _, h := range m.Headers {
		header[h.Key] = append(header[h.Key], string(h.Value))
		if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			attributes[name] = string(h.Value)
		}
	}
	out := oracle.Message{
		Position: uint64(m.Offset) + 1,
		Lane:     partition,
		Key:      string(m.Key),
		Header:   header,
		Body:     m.Value,
		Stored:   time.Time{},
	}
	if len(attributes) > 0 {
		attributes["datacontenttype"] = oracle.First(header["content-type"])
		out.Body = structured(attributes, m.Value)
	}
	return out
}

// structured converts an event from binary to structured mode (Kafka protocol binding for
// CloudEvents, section 3.2).
func structured(attributes map[string]string, data []byte) []byte {
	body := []byte{'{'}
	for name, value := range attributes {
		body = fmt.Appendf(body, "%s:%s,", strconv.Quote(name), jsonText(value))
	}
	return append(append(append(body, `"data":`...), data...), '}')
}

func jsonText(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // A string.
	}
	return text
}

// KillLeader kills the leader of each partition in turn until ctx ends, restarts it after a moment,
// and counts the kills. It continues after the replicas have caught up, because a partition without
// two in-sync replicas may reject writes.
func (k *Kafka) KillLeader(ctx context.Context, kills *atomic.Int64) error {
	for partition := 0; ctx.Err() == nil; partition++ {
		leader, err := k.Leader(ctx, k.Topic, partition%k.PartitionCount)
		if err != nil {
			return IgnoreEnd(ctx, err)
		}
		k.Node(leader).Kill()
		kills.Add(1)
		Pass(ctx, 500*time.Millisecond)
		if err := k.Node(leader).Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if err := k.WaitInSync(ctx, k.Topic); err != nil {
			return IgnoreEnd(ctx, err)
		}
		Pass(ctx, time.Second)
	}
	return nil
}

// IgnoreEnd returns nil if ctx has ended, otherwise err.
func IgnoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
