package fromkafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// startingBroker leads two topics, "a" and "b", of two partitions with one record each. It has just
// started.
type startingBroker struct {
	unknown  atomic.Int64 // answers to ListOffsets for partition 1 of b that remain UNKNOWN_TOPIC_OR_PARTITION
	absent   atomic.Int64 // answers to Metadata that remain without b
	holds    atomic.Bool  // no records of b are returned
	failing  atomic.Int64 // answers to Metadata that remain with an error in place of b's partitions
	fewer    atomic.Bool  // b has partition 0 alone
	headless atomic.Bool  // partition 1 of b has no leader
	lost     atomic.Int64 // requests for records of b that remain without a leader
}

func (b *startingBroker) RoundTrip(ctx context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	switch r := req.(type) {
	case *metadata.Request:
		res := &metadata.Response{Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: "b", Port: 9092}}}
		for _, name := range []string{"a", "b"} {
			switch {
			case name == "a":
			case b.absent.Add(-1) >= 0:
				continue
			case b.failing.Add(-1) >= 0:
				res.Topics = append(res.Topics, metadata.ResponseTopic{
					Name:      name,
					ErrorCode: int16(kafka.LeaderNotAvailable),
				})
				continue
			case b.fewer.Load():
				res.Topics = append(res.Topics, metadata.ResponseTopic{
					Name: name, Partitions: []metadata.ResponsePartition{{PartitionIndex: 0, LeaderID: 1}},
				})
				continue
			}
			res.Topics = append(res.Topics, metadata.ResponseTopic{
				Name: name, Partitions: []metadata.ResponsePartition{{PartitionIndex: 0, LeaderID: 1}, {
					PartitionIndex: 1,
					LeaderID:       1,
				}},
			})
		}
		return res, nil
	case *apiversions.Request:
		return &apiversions.Response{}, nil // no topic ids
	case *listoffsets.Request:
		res := &listoffsets.Response{}
		for _, t := range r.Topics {
			out := listoffsets.ResponseTopic{Topic: t.Topic}
			unknown := t.Topic == "b" && b.unknown.Add(-1) >= 0
			for _, p := range t.Partitions {
				a := listoffsets.ResponsePartition{Partition: p.Partition, Timestamp: p.Timestamp}
				if p.Timestamp == kafka.LastOffset {
					a.Offset = 1
				}
				if t.Topic == "b" && p.Partition == 1 && b.headless.Load() {
					a.ErrorCode, a.Offset = int16(kafka.LeaderNotAvailable), -1
				}
				if p.Partition == 1 && unknown {
					a.ErrorCode, a.Offset = int16(kafka.UnknownTopicOrPartition), -1
				}
				out.Partitions = append(out.Partitions, a)
			}
			res.Topics = append(res.Topics, out)
		}
		return res, nil
	case *fetch.Request:
		topic, p := r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition
		value := fmt.Appendf(nil,
			`{"specversion":"1.0","id":"%s/%d","source":"/kubernetes/x","type":"dev.kubecdc.object.updated",`+
				`"apiversion":"v1","kind":"Pod","resource":"pods","namespace":"shop","name":"web","uid":"%[2]d","op":"u","data":{"op":"u","after":{}}}`,
			topic, p)
		records := protocol.NewRecordReader(protocol.Record{
			Value: protocol.NewBytes(value), Headers: []protocol.Header{{
				Key:   "content-type",
				Value: []byte("application/cloudevents+json"),
			}},
		})
		if topic == "b" && b.lost.Add(-1) >= 0 {
			return nil, protocol.NewErrNoLeader(topic, p)
		}
		if topic == "b" && b.holds.Load() {
			_ = pause.For(ctx, fetchWait)
			records = protocol.NewRecordReader()
		}
		return &fetch.Response{Topics: []fetch.ResponseTopic{{Topic: topic, Partitions: []fetch.ResponsePartition{{
			Partition: p, HighWatermark: 1, RecordSet: protocol.RecordSet{Version: 2, Records: records},
		}}}}}, nil
	}
	return nil, fmt.Errorf("unexpected %T", req)
}

// read opens a reader of all records up to the end.
func (b *startingBroker) read(t *testing.T) (*kafkaReader, error) {
	t.Helper()
	r := &kafkaReader{
		s: &Kafka{Brokers: []string{"b:9092"}, Topics: []string{"a", "b"}}, q: consume.Query{
			Start:     consume.Beginning(),
			StopAtEnd: true,
		},
		batches: make(chan *kafkaBatch), looked: time.Now(), conns: kafkanet.New(kafkanet.Options{}),
		client:     &kafka.Client{Addr: kafka.TCP("b:9092"), Transport: b},
		partitions: map[partitionID]*kafkaPartition{}, at: map[partitionID]consume.Position{},
	}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	t.Cleanup(func() { _ = r.Close() })
	return r, r.open(t.Context())
}

// rest returns the ids of the events up to the end.
func rest(t *testing.T, r *kafkaReader) (ids []string) {
	t.Helper()
	ids, err := restOrError(t, r)
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return ids
}

// restOrError returns the ids of the events up to an error, and the error.
func restOrError(t *testing.T, r *kafkaReader) (ids []string, err error) {
	t.Helper()
	for {
		e, err := r.Next(t.Context())
		if err != nil {
			slices.Sort(ids)
			return ids, err
		}
		ids = append(ids, e.ID)
	}
}

// A read to the end includes a partition that its leader does not know yet.
func TestKafkaPartitionUnknownToItsLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b startingBroker
		b.unknown.Store(50) // 5 s
		r, err := b.read(t)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a/0", "a/1", "b/0", "b/1"}, rest(t, r)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// A read fails if the leader of a partition does not know it for longer.
func TestKafkaPartitionNeverKnownToItsLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b startingBroker
		b.unknown.Store(math.MaxInt64)
		if _, err := b.read(t); !errors.Is(err, kafka.UnknownTopicOrPartition) ||
			!strings.Contains(err.Error(), "topic b, partition 1") {
			t.Errorf("opened with error %v, want that partition 1 of topic b is unknown", err)
		}
	})
}

// A read to the end keeps a topic that is absent from the metadata for a moment. If the topic was
// deleted, the read fails: it did not return all records.
func TestKafkaTopicAbsentFromMetadata(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		absent  int64
		want    []string
		deleted bool
	}{
		{1, []string{"a/0", "a/1", "b/0", "b/1"}, false},
		{math.MaxInt64, []string{"a/0", "a/1"}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b startingBroker
			b.holds.Store(true)
			r, err := b.read(t)
			if err != nil {
				t.Fatal(err)
			}
			b.absent.Store(c.absent)
			r.lookAgain(t.Context())
			time.AfterFunc(absentFor, func() { b.holds.Store(c.absent > 1) })
			got, end := restOrError(t, r)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("absent from %d answers: -want +got\n%s", c.absent, diff)
			}
			if c.deleted != errors.Is(end, errDeleted) || !c.deleted && !errors.Is(end, io.EOF) {
				t.Errorf("absent from %d answers: the read ended with %v", c.absent, end)
			}
		})
	}
}

// A topic that the metadata names with an error is not left out: its records would be missing, and
// nothing would say so.
func TestKafkaTopicWithAnErrorIsNotLeftOut(t *testing.T) {
	t.Parallel()
	for _, failing := range []int64{3, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			var b startingBroker
			b.failing.Store(failing)
			r, err := b.read(t)
			if failing == math.MaxInt64 {
				if !errors.Is(err, kafka.LeaderNotAvailable) || !strings.Contains(err.Error(), "topic b") {
					t.Errorf("opened with error %v, want that of topic b", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a/0", "a/1", "b/0", "b/1"}, rest(t, r)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// The time of a partition's first record is read again while the partition has no leader, for half
// a minute.
func TestKafkaFirstRecordWaitsForALeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		requests int64 // that find no leader
		waits    time.Duration
		err      string
	}{
		{0, 0, ""}, {20, 2 * time.Second, ""}, {1 << 40, leaderWait, "topic b, partition 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b startingBroker
			b.holds.Store(true) // the reader itself asks for records of b once
			r, err := b.read(t)
			if err != nil {
				t.Fatal(err)
			}
			b.holds.Store(false)
			b.lost.Store(c.requests)
			began := time.Now()
			_, err = r.timeAt(t.Context(), consume.Log{Name: "b", Partition: 1}, 0)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%d requests without a leader: %v, want %q", c.requests, err, c.err)
			}
			if took := time.Since(began); took > c.waits+time.Second || c.requests > 1000 && took < c.waits {
				t.Errorf("%d requests without a leader: it took %s, want %s at most", c.requests, took, c.waits)
			}
		})
	}
}

// A read to the end fails if a partition has no leader, or if the topic is created again with fewer
// partitions before all records were returned.
func TestKafkaPartitionThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b startingBroker
		b.headless.Store(true)
		if _, err := b.read(t); err == nil || !strings.Contains(err.Error(), "topic b, partition 1") {
			t.Errorf("opened with error %v, want that partition 1 of topic b has no leader", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var b startingBroker
		b.holds.Store(true)
		r, err := b.read(t)
		if err != nil {
			t.Fatal(err)
		}
		b.fewer.Store(true)
		r.lookAgain(t.Context())
		got, end := restOrError(t, r)
		if !errors.Is(end, errDeleted) || !strings.Contains(end.Error(), "topic b, partition 1") ||
			slices.Contains(got, "b/1") {
			t.Errorf("after %q the read ended with %v", got, end)
		}
	})
}
