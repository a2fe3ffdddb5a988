package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay/debezium"
)

// Policies of topics (https://kafka.apache.org/documentation/#topicconfigs_cleanup.policy).
const (
	policyCompact = "compact"
	policyDelete  = "delete"
)

// OpenChangelog implements driver.Changelogger.
func (c *Config) OpenChangelog(e *driver.Env, streamTopic string) (publish.Bus, error) {
	rows, stream := *c, *c
	rows.Tombstones = true // after the row of a deleted object
	rows.Create = c.Create.with(policyCompact)
	stream.Topic, stream.Create = cmp.Or(streamTopic, defaultStreamTopic(c.Topic)), c.Create.with(policyDelete)
	var buses [2]*Bus
	for i, settings := range []*Config{&rows, &stream} {
		bus, err := settings.Open(e)
		if err != nil {
			return nil, err
		}
		buses[i] = bus.(*Bus) //nolint:forcetypeassert // Open returns no other
	}
	return debezium.New(debezium.Options{Rows: buses[0], Stream: buses[1], Log: e.Log}), nil
}

// with returns the settings with a cleanup policy; nil for nil.
func (t *Topic) with(policy string) *Topic {
	if t == nil {
		return nil
	}
	all := *t
	all.Config = maps.Clone(t.Config)
	if all.Config == nil {
		all.Config = map[string]string{}
	}
	all.Config[cleanupPolicy] = policy
	return &all
}

// defaultStreamTopic returns the topic for the stream events of a table: "tables.prod" and
// "tables.prod.stream", "tables.{resource}" and "tables._stream". No value of a placeholder begins
// with "_s".
func defaultStreamTopic(template string) string {
	rest, known := template, 0
	for {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			return template + ".stream"
		}
		if !strings.HasPrefix(rest[i:], "{cluster}") {
			return template[:known+i] + "_stream"
		}
		known += i + len("{cluster}")
		rest = template[known:]
	}
}

// ValidateChangelog implements driver.Changelogger.
func (c *Config) ValidateChangelog(to, streamTopic *field.Path, topic string, f *driver.Facts) field.ErrorList {
	var list field.ErrorList
	if c.Create != nil && strings.Contains(c.Create.Config[cleanupPolicy], policyDelete) {
		policy := to.Child("create", "config").Key(cleanupPolicy)
		list = append(list, field.Invalid(policy, c.Create.Config[cleanupPolicy], "must be "+policyCompact+
			", or left out, with format: debezium: the topic is the table, and keeps the last row of each object"))
	}
	used := cmp.Or(topic, defaultStreamTopic(c.Topic))
	names, err := NewTopics(used, f.ClusterName())
	if err == nil {
		if _, fixed := names.Fixed(); !fixed {
			err = fmt.Errorf(
				"topic template %q: {cluster} is the only placeholder, because all stream events go to one topic",
				used)
		}
	}
	meets := func(topic string) bool { return topicsMeet(inCluster(used, f.Cluster), inCluster(topic, f.Cluster)) }
	switch b, ok := f.Source.(*Config); {
	case err != nil:
		list = append(list, field.Invalid(streamTopic, used, err.Error()))
	case meets(c.Topic):
		list = append(list, field.Invalid(streamTopic, used, fmt.Sprintf(
			"must differ from the topics of the rows (%s), such as %s", to.Child("topic"),
			defaultStreamTopic(c.Topic))))
	case ok && meets(b.Topic) && driver.ShareServer(b.Brokers, c.Brokers):
		list = append(list, field.Invalid(streamTopic, used,
			"is a topic of the bus itself: the relay would read its own output; use another topic"))
	}
	return list
}

// Scan implements debezium.Log. The user must be allowed to read the topics.
func (b *Bus) Scan(ctx context.Context, r *object.Resource, each func(key, value []byte) error) error {
	var names []string // nil: all topics
	fixed, isFixed := b.topicNames.Fixed()
	if isFixed {
		names = []string{fixed}
	}
	res, err := b.metadata(ctx, names)
	if err != nil {
		return err
	}
	for i := range res.Topics {
		t := &res.Topics[i]
		switch {
		case t.Internal || !b.topicNames.Match(t.Name, r):
			continue
		case t.Error != nil:
			return fmt.Errorf("topic %s: %w", t.Name, t.Error)
		case len(t.Partitions) == 0:
			return fmt.Errorf("topic %s has no partitions yet", t.Name)
		}
		for _, p := range t.Partitions {
			if p.Leader.Host == "" {
				return fmt.Errorf("topic %s, partition %d has no leader", t.Name, p.ID)
			}
			leader := kafka.TCP(net.JoinHostPort(p.Leader.Host, fmt.Sprint(p.Leader.Port)))
			s := scan{backReader: backReader{bus: b, topic: t.Name, partition: p.ID, leader: leader}, each: each}
			if err := s.run(ctx); err != nil {
				return fmt.Errorf("read topic %s, partition %d: %w", t.Name, p.ID, err)
			}
		}
	}
	if isFixed && len(res.Topics) == 0 {
		return fmt.Errorf("topic %s: %w", fixed, kafka.UnknownTopicOrPartition)
	}
	return nil
}

// scan reads a partition from its beginning to the end that it has at first.
type scan struct {
	backReader

	each       func(key, value []byte) error
	key, value []byte // buffers
}

func (s *scan) run(ctx context.Context) error {
	end, err := s.offset(ctx, kafka.LastOffset)
	if err != nil {
		return err
	}
	next, err := s.offset(ctx, kafka.FirstOffset)
	if err != nil {
		return err
	}
	for next < end {
		next, err = s.fetchFrom(ctx, next, end)
		if err != nil {
			return err
		}
	}
	return nil
}

// fetchFrom reads the records of one response. It returns the offset after them.
func (s *scan) fetchFrom(ctx context.Context, offset, end int64) (next int64, err error) {
	res, err := s.bus.client(s.leader).Fetch(ctx, &kafka.FetchRequest{
		Topic:     s.topic,
		Partition: s.partition,
		Offset:    offset,
		MinBytes:  1,
		MaxBytes:  readBackFetch,
		MaxWait:   time.Second,
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return 0, kafkaid.Cause(err)
	}
	next = offset
	for {
		rec, err := res.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		s.key, err = appendAll(s.key[:0], rec.Key)
		if err != nil {
			return 0, err
		}
		isTombstone := rec.Value == nil
		s.value, err = appendAll(s.value[:0], rec.Value)
		if err != nil {
			return 0, err
		}
		if rec.Offset < offset {
			continue // of the batch that has the offset
		}
		if rec.Offset >= end {
			return end, nil
		}
		next = rec.Offset + 1
		value := s.value
		if isTombstone {
			value = nil
		}
		if err := s.each(s.key, value); err != nil {
			return 0, err
		}
	}
	if next == offset { // compaction has removed the records, or they are marks of transactions
		next++
	}
	return next, nil
}

// appendAll appends the bytes of a part of a record, and closes it.
func appendAll(dst []byte, part protocol.Bytes) ([]byte, error) {
	if part == nil {
		return dst, nil
	}
	defer func() { _ = part.Close() }() // it has been copied
	n := len(dst)
	dst = slices.Grow(dst, part.Len())[:n+part.Len()]
	_, err := io.ReadFull(part, dst[n:])
	return dst, err
}
