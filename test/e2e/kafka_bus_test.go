package e2e_test

import (
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
)

// kafkaBus is a topic that the agent makes, read partition by partition with kafka-go. Nothing is read with a consumer
// group: what lies in the log counts, not what a group makes of it.
type kafkaBus struct {
	*kafka.Cluster
	brokers    []string // As the agent is told.
	topic      string
	partitions int
	more       string // More of bus.kafka, YAML as in a flow mapping.
	settings   string // Of the topic, the same.
}

// kafkaTopic is the topic of an agent whose configuration says `kubecdc.{cluster}`.
const kafkaTopic = "kubecdc." + clusterName

// startKafka starts brokers until the test ends, or skips the test where none can be had.
func startKafka(t testing.TB, o kafka.Options) *kafkaBus {
	t.Helper()
	c := kafka.Start(t, o)
	return &kafkaBus{Cluster: c, brokers: c.Brokers(), topic: kafkaTopic, partitions: 3}
}

// kafkaNodes is how many brokers a test of many has.
func kafkaNodes(t testing.TB) int { return int(number(t, "NODES", 1)) }

func (k *kafkaBus) config() string {
	more := ""
	if k.more != "" {
		more = ", " + k.more
	}
	return fmt.Sprintf("kafka: {brokers: [%s], topic: 'kubecdc.{cluster}', create: {partitions: %d, replicationFactor: %d, config: {%s}}%s}",
		`"`+strings.Join(k.brokers, `", "`)+`"`, k.partitions, min(3, k.Nodes()), k.settings, more)
}

// laneOf is the partition in which Java's producers would put the object.
func (k *kafkaBus) laneOf(key objectKey) int {
	plural, group := key.split()
	namespace := key.Namespace
	if namespace == "" {
		namespace = "_"
	}
	partitions := make([]int, k.partitions)
	for i := range partitions {
		partitions[i] = i
	}
	text := strings.Join([]string{clusterName, coreGroup(group), plural, namespace, key.Name}, "/")
	return kafkago.Murmur2Balancer{Consistent: true}.Balance(kafkago.Message{Key: []byte(text)}, partitions...)
}

func (k *kafkaBus) read(t testing.TB, r *reader) *stream {
	t.Helper()
	s := newStream()
	s.laneOf, s.lanes = k.laneOf, func() int { return k.partitions }
	for partition := range k.partitions {
		own := *r // Not safe for concurrent use.
		last := int64(-1)
		s.run(t, func(ctx context.Context) error {
			return k.consume(ctx, k.topic, partition, func(m kafkago.Message) {
				if m.Offset != last+1 { // Nothing is compacted, and no transaction leaves its mark.
					s.add(record{Lane: partition, Position: uint64(m.Offset) + 1, Problems: []string{
						fmt.Sprintf("partition %d goes from offset %d to %d", partition, last, m.Offset),
					}}, 0)
				}
				last = m.Offset
				s.add(own.read(kafkaMessage(m, partition)), len(m.Value))
			})
		})
		dead := *r
		s.run(t, func(ctx context.Context) error {
			return k.consume(ctx, k.topic+".dead", partition, func(m kafkago.Message) { s.bury(dead.readLetter(kafkaMessage(m, partition))) })
		})
	}
	s.body = func(ctx context.Context, lane int, position uint64) ([]byte, error) {
		reader := k.reader(k.topic, lane)
		defer reader.Close()
		if err := reader.SetOffset(int64(position) - 1); err != nil {
			return nil, err
		}
		m, err := reader.ReadMessage(ctx)
		return kafkaMessage(m, lane).Body, err
	}
	return s
}

func (k *kafkaBus) reader(topic string, partition int) *kafkago.Reader {
	return kafkago.NewReader(kafkago.ReaderConfig{
		Brokers: k.Inside(), Topic: topic, Partition: partition,
		MinBytes: 1, MaxBytes: 16 << 20, MaxWait: 200 * time.Millisecond,
		ReadBackoffMin: 20 * time.Millisecond, ReadBackoffMax: 200 * time.Millisecond,
		Dialer: &kafkago.Dialer{Timeout: 3 * time.Second},
	})
}

// consume reads a partition with one reader after the other until ctx ends: brokers come and go.
func (k *kafkaBus) consume(ctx context.Context, topic string, partition int, take func(kafkago.Message)) error {
	next := int64(0)
	for ctx.Err() == nil {
		if err := k.consumeFrom(ctx, topic, partition, &next, take); ctx.Err() == nil {
			_ = await(ctx, 200*time.Millisecond, func() error { return err }) // A moment before the next try.
		}
	}
	return context.Cause(ctx)
}

func (k *kafkaBus) consumeFrom(ctx context.Context, topic string, partition int, next *int64, take func(kafkago.Message)) error {
	if _, err := k.Partitions(ctx, topic); err != nil {
		return err // The agent has not made it yet.
	}
	reader := k.reader(topic, partition)
	defer reader.Close()
	if err := reader.SetOffset(*next); err != nil {
		return err
	}
	for {
		// A reader that holds on to a broker that is gone is given up.
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

// kafkaMessage is a record in structured mode, whatever it is on the bus.
func kafkaMessage(m kafkago.Message, partition int) message {
	header := make(map[string][]string)
	attributes := make(map[string]string)
	for _, h := range m.Headers {
		header[h.Key] = append(header[h.Key], string(h.Value))
		if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			attributes[name] = string(h.Value)
		}
	}
	out := message{
		Position: uint64(m.Offset) + 1, Lane: partition, Key: string(m.Key), Header: header, Body: m.Value, Stored: time.Time{},
	}
	if len(attributes) > 0 {
		attributes["datacontenttype"] = first(header["content-type"])
		out.Body = structured(attributes, m.Value)
	}
	return out
}

// structured is the event in structured mode that these attributes and data are in binary mode (CloudEvents' Kafka
// binding, section 3.2).
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

// killLeader kills, again and again until ctx ends and counts, the node that leads a partition, waits a moment and starts it again. It
// goes on only when the others have caught up: a partition without two replicas may not be written to.
func (k *kafkaBus) killLeader(ctx context.Context, kills *atomic.Int64) error {
	for partition := 0; ctx.Err() == nil; partition++ {
		leader, err := k.Leader(ctx, k.topic, partition%k.partitions)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		k.Node(leader).Kill()
		kills.Add(1)
		pass(ctx, 500*time.Millisecond)
		if err := k.Node(leader).Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if err := k.WaitInSync(ctx, k.topic); err != nil {
			return ignoreEnd(ctx, err)
		}
		pass(ctx, time.Second)
	}
	return nil
}

// ignoreEnd is nil where the test's part is over.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
