package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/object"
)

// OpenChangelog implements driver.ChangelogOpener.
func (o Opener) OpenChangelog(e *driver.Env, streamTopic string) (*driver.Changelog, error) {
	rows, stream := *o.Config, *o.Config
	rows.Tombstones = true // after the row of a deleted object
	rows.Create = o.Create.With(kafkaconfig.PolicyCompact)
	stream.Topic = cmp.Or(streamTopic, kafkaconfig.DefaultStreamTopic(o.Topic))
	stream.Create = o.Create.With(kafkaconfig.PolicyDelete)
	var buses [2]*Bus
	for i, settings := range []*Config{&rows, &stream} {
		bus, err := Opener{settings}.Open(e)
		if err != nil {
			return nil, err
		}
		buses[i] = bus.(*Bus) //nolint:forcetypeassert // Open returns no other
	}
	return &driver.Changelog{Rows: buses[0], Stream: buses[1]}, nil
}

// Scan implements driver.Log. The user must be allowed to read the topics.
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
			s := scan{backReader: backReader{
				bus:       b,
				topic:     t.Name,
				partition: p.ID,
				leader:    leader,
			}, each: each}
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
