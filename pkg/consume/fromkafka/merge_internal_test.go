package fromkafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// shelf is a broker of topic "t". Each partition has records, and returns a few at a time.
type shelf struct {
	partitions [][]shelved
	removed    map[int32]int64 // the first records of each partition
	batch      int

	mu      sync.Mutex
	fetches map[int32]int
	slow    map[int32]time.Duration // answers of a partition take that long
}

// shelved is a record. name is "" for a tombstone, and "?" for one that cannot be read.
type shelved struct {
	name string
	at   time.Time
}

func (b *shelf) RoundTrip(ctx context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	switch r := req.(type) {
	case *metadata.Request:
		t := metadata.ResponseTopic{Name: "t"}
		for i := range b.partitions {
			t.Partitions = append(t.Partitions, metadata.ResponsePartition{PartitionIndex: int32(i), LeaderID: 1})
		}
		return &metadata.Response{
			Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: "b", Port: 9092}}, Topics: []metadata.ResponseTopic{t},
		}, nil
	case *apiversions.Request:
		return &apiversions.Response{}, nil // no topic ids
	case *listoffsets.Request:
		out := listoffsets.ResponseTopic{Topic: "t"}
		for _, p := range r.Topics[0].Partitions {
			out.Partitions = append(out.Partitions, listoffsets.ResponsePartition{
				Partition: p.Partition, Timestamp: p.Timestamp, Offset: b.offset(p),
			})
		}
		return &listoffsets.Response{Topics: []listoffsets.ResponseTopic{out}}, nil
	case *fetch.Request:
		return b.fetch(ctx, &r.Topics[0].Partitions[0])
	}
	return nil, fmt.Errorf("unexpected %T", req)
}

func (b *shelf) offset(p listoffsets.RequestPartition) int64 {
	all := b.partitions[p.Partition]
	switch p.Timestamp {
	case kafka.FirstOffset:
		return b.removed[p.Partition]
	case kafka.LastOffset:
		return int64(len(all))
	}
	return int64(slices.IndexFunc(all, func(s shelved) bool { return s.at.UnixMilli() >= p.Timestamp }))
}

func (b *shelf) fetch(ctx context.Context, p *fetch.RequestPartition) (kafka.Response, error) {
	b.mu.Lock()
	if b.fetches == nil {
		b.fetches = map[int32]int{}
	}
	b.fetches[p.Partition]++
	slow := b.slow[p.Partition]
	b.mu.Unlock()
	if pause.For(ctx, slow) != nil {
		return nil, context.Cause(ctx)
	}
	all := b.partitions[p.Partition]
	var records []protocol.Record
	for i := int(p.FetchOffset); i < min(len(all), int(p.FetchOffset)+b.batch); i++ {
		rec := protocol.Record{Offset: int64(i), Time: all[i].at, Headers: []protocol.Header{{
			Key:   "content-type",
			Value: []byte("application/cloudevents+json"),
		}}}
		switch all[i].name {
		case "":
		case "?":
			rec.Value = protocol.NewBytes([]byte("{"))
		default:
			rec.Value = protocol.NewBytes(
				fmt.Appendf(nil,
					`{"specversion":"1.0","id":%q,"source":"/kubernetes/x","type":"dev.kubecdc.object.updated","time":%q,`+
						`"apiversion":"v1","kind":"Pod","resource":"pods","namespace":"shop","name":"web","uid":"u","op":"u","data":{"op":"u","after":{}}}`,
					all[i].name, all[i].at.Format(time.RFC3339Nano)))
		}
		records = append(records, rec)
	}
	return &fetch.Response{Topics: []fetch.ResponseTopic{{Topic: "t", Partitions: []fetch.ResponsePartition{{
		Partition: p.Partition, HighWatermark: int64(len(all)), RecordSet: protocol.RecordSet{
			Version: 2,
			Records: protocol.NewRecordReader(records...),
		},
	}}}}}, nil
}

func (b *shelf) fetched(partition int32) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fetches[partition]
}

func (b *shelf) read(t *testing.T, q consume.Query) *kafkaReader {
	t.Helper()
	r := &kafkaReader{
		s: &Kafka{Brokers: []string{"b:9092"}, Topics: []string{"t"}}, q: q,
		batches: make(chan *kafkaBatch), looked: time.Now(), conns: kafkanet.New(kafkanet.Options{}),
		client:     &kafka.Client{Addr: kafka.TCP("b:9092"), Transport: b},
		partitions: map[partitionID]*kafkaPartition{}, at: map[partitionID]consume.Position{}, copies: map[string]int{},
	}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	if err := r.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// merged returns the events of a shelf by time, as far as each partition is in that order.
func (b *shelf) merged() (names []string, unreadable int) {
	rest := make([][]shelved, len(b.partitions))
	for i, all := range b.partitions {
		for _, s := range all {
			switch s.name {
			case "":
			case "?":
				unreadable++
			default:
				rest[i] = append(rest[i], s)
			}
		}
	}
	for {
		first := -1
		for i, all := range rest {
			if len(all) > 0 && (first < 0 || all[0].at.Before(rest[first][0].at)) {
				first = i
			}
		}
		if first < 0 {
			return names, unreadable
		}
		names = append(names, rest[first][0].name)
		rest[first] = rest[first][1:]
	}
}

// Partitions are merged by time, whichever of them is slow, empty, or has records that are no
// events.
func TestKafkaByTime(t *testing.T) {
	begin := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		b := &shelf{batch: rapid.IntRange(1, 5).Draw(rt, "batch"), slow: map[int32]time.Duration{}}
		for p := range rapid.IntRange(1, 5).Draw(rt, "partitions") {
			at := begin
			var all []shelved
			for i := range rapid.IntRange(0, 20).Draw(rt, "records") {
				at = at.Add(time.Duration(rapid.IntRange(-3, 20).Draw(rt, "later")) * time.Second)
				name := rapid.SampledFrom([]string{"", "?", "event", "event", "event", "event"}).Draw(rt, "kind")
				if name == "event" {
					name = fmt.Sprintf("%d/%d", p, i)
				}
				all = append(all, shelved{name, at})
			}
			b.partitions = append(b.partitions, all)
			b.slow[int32(p)] = time.Duration(rapid.SampledFrom([]int{0, 0, 10, 1000}).Draw(rt, "slow")) *
				time.Millisecond
		}
		want, unreadable := b.merged()
		synctest.Test(t, func(t *testing.T) {
			r := b.read(t, consume.Query{Start: consume.Beginning(), StopAtEnd: true, ByTime: true})
			defer func() { _ = r.Close() }()
			var got []string
			for {
				e, err := r.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				var record *consume.RecordError
				if errors.As(err, &record) {
					unreadable--
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e.ID)
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if unreadable != 0 {
				t.Errorf("%d records that cannot be read are missing", unreadable)
			}
			if !r.CaughtUp() {
				t.Error("it is not caught up at the end")
			}
			for p, at := range r.Positions() {
				if at.Next != uint64(len(b.partitions[p])) {
					t.Errorf("partition %d ends at %d", p, at.Next)
				}
			}
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// hours is a shelf of partitions with an event a minute.
func hours(partitions, minutes int) *shelf {
	b := &shelf{batch: 10, slow: map[int32]time.Duration{}}
	for p := range partitions {
		var all []shelved
		for m := range minutes {
			all = append(all, shelved{fmt.Sprintf("%d/%d", p, m), time.Date(2026, 11, 20, 14, m, p, 0, time.UTC)})
		}
		b.partitions = append(b.partitions, all)
	}
	return b
}

// A partition that does not answer holds up the merge, and the others fetch no more than two
// batches meanwhile.
func TestKafkaByTimeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := hours(3, 100)
		b.slow[1] = time.Hour
		r := b.read(t, consume.Query{Start: consume.Beginning(), StopAtEnd: true, ByTime: true})
		defer func() { _ = r.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if e, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, %v before partition 1 has answered", e, err)
		}
		for _, p := range []int32{0, 2} {
			if n := b.fetched(p); n > 2 {
				t.Errorf("partition %d was fetched from %d times", p, n)
			}
		}
		if e, err := r.Next(t.Context()); err != nil || e.ID != "0/0" {
			t.Errorf("got %v, %v, want the first event", e, err)
		}
	})
}

// The rest of a log that is left is neither returned nor fetched, and the others are read to their
// ends.
func TestKafkaLeave(t *testing.T) {
	t.Parallel()
	for _, byTime := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := hours(3, 100)
			r := b.read(t, consume.Query{Start: consume.Beginning(), StopAtEnd: true, ByTime: byTime})
			defer func() { _ = r.Close() }()
			got := map[int]int{}
			for {
				e, err := r.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				p := e.Position.Partition
				got[p]++
				if p == 1 && got[p] == 15 {
					r.Leave(e.Position.Log)
				}
			}
			if diff := gocmp.Diff(map[int]int{0: 100, 1: 15, 2: 100}, got); diff != "" {
				t.Errorf("by time %t: -want +got\n%s", byTime, diff)
			}
			if n := b.fetched(1); n > 4 {
				t.Errorf("by time %t: the log that was left was fetched from %d times", byTime, n)
			}
			i := slices.IndexFunc(r.Positions(), func(p consume.Position) bool { return p.Partition == 1 })
			if at := r.Positions()[i]; at.Next != 15 || !r.CaughtUp() {
				t.Errorf("by time %t: position %d of the log that was left; caught up: %t", byTime, at.Next,
					r.CaughtUp())
			}
		})
	}
}

// One copy is that of one partition, from a time on.
func TestKafkaOneCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := hours(3, 20)
		r := b.read(t, consume.Query{
			Start:     consume.Since(time.Date(2026, 11, 20, 14, 15, 0, 0, time.UTC)),
			StopAtEnd: true,
			OneCopy:   true,
		})
		defer func() { _ = r.Close() }()
		if diff := gocmp.Diff([]string{"0/15", "0/16", "0/17", "0/18", "0/19"}, rest(t, r)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// One copy from the beginning is that of the partition with the oldest record.
func TestKafkaOneCopyFromTheBeginning(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		removed map[int32]int64
		want    string
	}{
		{map[int32]int64{0: 5, 1: 3, 2: 9}, "1/3"},
		{map[int32]int64{0: 20, 1: 7, 2: 6}, "2/6"},
		{map[int32]int64{0: 5, 1: 3}, "2/0"},
		{nil, "0/0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := hours(3, 20)
			b.removed = c.removed
			r := b.read(t, consume.Query{Start: consume.Beginning(), StopAtEnd: true, OneCopy: true})
			defer func() { _ = r.Close() }()
			if e, err := r.Next(t.Context()); err != nil || e.ID != c.want {
				t.Errorf("got %v, %v, want %s", e, err, c.want)
			}
			if n := len(r.Positions()); n != 1 {
				t.Errorf("%d partitions are read", n)
			}
		})
	}
}
