package kafkanet_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
)

// fakeBroker is a broker at the other end of pipes. It notes when requests arrive.
type fakeBroker struct {
	mu      sync.Mutex
	began   time.Time
	arrived []arrival
	pauses  []time.Duration // of the next answers; then 0
	dialled int
	dead    int           // the first connections, which answer nothing any more
	hole    time.Time     // connections that are made until then are dead too
	takes   time.Duration // until a request to produce is answered
	serving sync.WaitGroup
}

type arrival struct {
	At   time.Duration // since the beginning
	What protocol.ApiKey
}

func (b *fakeBroker) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	b.mu.Lock()
	b.dialled++
	n := b.dialled
	if time.Now().Before(b.hole) {
		b.dead = n
	}
	b.mu.Unlock()
	b.serving.Go(func() {
		defer theirs.Close()
		for {
			version, id, _, req, err := protocol.ReadRequest(theirs)
			if err != nil {
				return
			}
			res, answers := b.answer(n, req)
			if answers && protocol.WriteResponse(theirs, version, id, res) != nil {
				return
			}
		}
	})
	return ours, nil
}

func (b *fakeBroker) answer(n int, req protocol.Message) (protocol.Message, bool) {
	if _, ok := req.(*apiversions.Request); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		res := &apiversions.Response{}
		for _, key := range []protocol.ApiKey{protocol.Metadata, protocol.Produce, protocol.Fetch} {
			res.ApiKeys = append(res.ApiKeys, apiversions.ApiKeyResponse{ApiKey: int16(key), MaxVersion: 8})
		}
		return res, n > b.dead
	}
	b.mu.Lock()
	b.arrived = append(b.arrived, arrival{time.Since(b.began), req.ApiKey()})
	pause := int32(0)
	if len(b.pauses) > 0 {
		pause = int32(b.pauses[0].Milliseconds())
		b.pauses = b.pauses[1:]
	}
	takes := b.takes
	dead := n <= b.dead
	b.mu.Unlock()
	switch req.(type) {
	case *produce.Request:
		<-time.After(takes)
		return &produce.Response{ThrottleTimeMs: pause}, !dead
	case *fetch.Request:
		res := &fetch.Response{ThrottleTimeMs: pause}
		if pause == 0 {
			res.Topics = []fetch.ResponseTopic{{Topic: "t"}}
		}
		return res, !dead
	default:
		return &metadata.Response{ThrottleTimeMs: pause}, !dead
	}
}

func (b *fakeBroker) arrivals() []arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.arrived
}

func batch() *rawproduce.Request {
	return &rawproduce.Request{Acks: -1, Timeout: 10_000, Topics: []rawproduce.RequestTopic{{
		Topic: "t", Partitions: []rawproduce.RequestPartition{{RecordSet: protocol.RawRecordSet{
			Reader: bytes.NewReader(emptySet()),
		}}},
	}}}
}

// emptySet returns a record set of no bytes.
func emptySet() []byte { return make([]byte, 4) }

// run gives f a network to a fake broker, in a bubble of fake time.
func run(t *testing.T, b *fakeBroker, f func(t *testing.T, n *kafkanet.Network, send func(protocol.Message) error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b.began = time.Now()
		n := kafkanet.New(kafkanet.Options{ClientID: "test", Dial: b.dial})
		f(t, n, func(req protocol.Message) error {
			_, err := n.RoundTrip(t.Context(), kafka.TCP("b:9092"), req)
			return err
		})
		n.Close()
		b.serving.Wait()
	})
}

// A broker names a pause of a minute. No request reaches it meanwhile, on no connection, whatever
// it asks for, and none fails.
func TestPauseHoldsAllRequestsToTheBroker(t *testing.T) {
	b := &fakeBroker{pauses: []time.Duration{time.Minute}}
	run(t, b, func(t *testing.T, n *kafkanet.Network, send func(protocol.Message) error) {
		if err := send(batch()); err != nil {
			t.Fatal(err)
		}
		if !n.IsThrottled("b:9092") || len(n.Pauses()) != 1 {
			t.Error("the broker does not count as throttled")
		}
		var sending sync.WaitGroup
		for _, req := range []protocol.Message{batch(), &metadata.Request{}, &fetch.Request{MaxWaitTime: 100}} {
			sending.Go(func() {
				if err := send(req); err != nil {
					t.Error(err)
				}
			})
		}
		sending.Wait()
		if n.IsThrottled("b:9092") {
			t.Error("the broker still counts as throttled")
		}
		for _, a := range b.arrivals()[1:] {
			if a.At < time.Minute {
				t.Errorf("a request of %v arrived after %s, in the pause", a.What, a.At)
			}
		}
	})
}

// After a pause, requests to produce arrive one at a time. All at once would exceed the quota by as
// much again.
func TestLimitedBrokerGetsOneBatchAtATime(t *testing.T) {
	b := &fakeBroker{pauses: []time.Duration{time.Second}, takes: 100 * time.Millisecond}
	run(t, b, func(t *testing.T, _ *kafkanet.Network, send func(protocol.Message) error) {
		if err := send(batch()); err != nil {
			t.Fatal(err)
		}
		var sending sync.WaitGroup
		for range 5 {
			sending.Go(func() {
				if err := send(batch()); err != nil {
					t.Error(err)
				}
			})
		}
		sending.Wait()
		var got []time.Duration
		for _, a := range b.arrivals() {
			got = append(got, a.At)
		}
		const ms = time.Millisecond
		want := []time.Duration{0, 1100 * ms, 1200 * ms, 1300 * ms, 1400 * ms, 1500 * ms}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// A fetch above the quota is answered without records. It is repeated after the pause: the answer
// is no end of the partition.
func TestWithheldFetchIsRepeated(t *testing.T) {
	b := &fakeBroker{pauses: []time.Duration{10 * time.Second}}
	run(t, b, func(t *testing.T, n *kafkanet.Network, _ func(protocol.Message) error) {
		res, err := n.RoundTrip(t.Context(), kafka.TCP("b:9092"), &fetch.Request{MaxWaitTime: 100})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.(*fetch.Response); len(got.Topics) != 1 || time.Since(b.began) != 10*time.Second {
			t.Errorf("%d topics after %s, want 1 after 10 s", len(got.Topics), time.Since(b.began))
		}
	})
}

// The path of 13 connections dies without a word. The first request without an answer ends them
// all, those in use too. The next request dials, so delivery resumes after one time limit, not
// after 13.
func TestSilentPathEndsAllOlderConnections(t *testing.T) {
	b := &fakeBroker{takes: time.Second}
	run(t, b, func(t *testing.T, _ *kafkanet.Network, send func(protocol.Message) error) {
		var sending sync.WaitGroup
		for range 13 {
			sending.Go(func() {
				if err := send(batch()); err != nil {
					t.Error(err)
				}
			})
		}
		sending.Wait()
		b.mu.Lock()
		b.dead, b.takes = b.dialled, 0
		b.mu.Unlock()
		died := time.Now()
		sending.Go(func() { // it must not wait for its own time limit
			<-time.After(4 * time.Second)
			if err := send(batch()); !errors.Is(err, context.DeadlineExceeded) || time.Since(died) > 6*time.Second {
				t.Errorf("a request in progress ended after %s with %v", time.Since(died), err)
			}
		})
		<-time.After(time.Second)
		if err := send(&metadata.Request{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request on a dead path: %v", err)
		}
		sending.Wait()
		if err := send(batch()); err != nil || time.Since(died) > 6*time.Second {
			t.Errorf("the next request ended after %s: %v", time.Since(died), err)
		}
	})
}

// A black hole swallows all connections, new ones too, for 30 s. A batch that is sent until it is
// stored is there within 20 s of its end.
func TestDeliveryResumesAfterABlackHole(t *testing.T) {
	b := &fakeBroker{}
	run(t, b, func(t *testing.T, _ *kafkanet.Network, send func(protocol.Message) error) {
		if err := send(batch()); err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(30 * time.Second)
		b.mu.Lock()
		b.dead, b.hole = b.dialled, end
		b.mu.Unlock()
		for send(batch()) != nil {
			<-time.After(2 * time.Second) // the longest pause between two attempts
		}
		if late := time.Since(end); late > 20*time.Second {
			t.Errorf("stored %s after the black hole", late)
		}
	})
}
