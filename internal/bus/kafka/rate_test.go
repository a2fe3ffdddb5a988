package kafka_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// slowBrokers are a model whose brokers take a tenth of a second for each batch, and cut the
// connection of a batch with "hemlock" in it.
type slowBrokers struct {
	*model
	cuts atomic.Int64
}

func (s *slowBrokers) RoundTrip(ctx context.Context, addr net.Addr, req kafkago.Request) (kafkago.Response, error) {
	if p, ok := req.(*rawproduce.Request); ok {
		<-time.After(100 * time.Millisecond)
		set := &p.Topics[0].Partitions[0].RecordSet
		raw, err := io.ReadAll(set.Reader)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(raw, []byte("hemlock")) {
			s.cuts.Add(1)
			return nil, kafkanet.ErrCut
		}
		*set = protocol.RawRecordSet{Reader: bytes.NewReader(raw)}
	}
	return s.model.RoundTrip(ctx, addr, req)
}

// While an isolated event is retried, others keep nine tenths of their rate, also those of its
// partition.
func TestRateBesideAnIsolatedEvent(t *testing.T) {
	const span, inFlight, partitions = 2 * time.Minute, 64, 4
	synctest.Test(t, func(t *testing.T) {
		m := &slowBrokers{model: newModel(1)}
		m.topic("dead.prod-eu-1", 1)
		m.topic("kubecdc.prod-eu-1", partitions)
		k := runKafka(t, kafkaConfig(m.addrs...), m)
		l := offerTo(t, k.Bus, inFlight, 0)
		rate := func() int {
			before := l.Count()
			<-time.After(span)
			return l.Count() - before
		}
		alone := rate()
		l.Put(t, "hemlock")
		beside := rate()
		t.Logf("%d events in %v, %d beside an isolated one, whose connection was cut %d times", alone, span, beside,
			m.cuts.Load())
		if 10*beside < 9*alone || alone == 0 {
			t.Errorf("%d events beside an isolated one, %d without it", beside, alone)
		}
		if ids := strings.Join(l.Isolated(), " "); ids != "pods/uid-hemlock/1" {
			t.Errorf("isolated are %s", ids)
		}
		l.Stop()
		if err := k.stop(); err != nil {
			t.Error(err)
		}
	})
}

// offerTo publishes events of one resource to a bus, through the agent's queue.
func offerTo(tb testing.TB, bus publish.Bus, inFlight int, pace time.Duration) *bustest.Load {
	tb.Helper()
	q := queue.New[*object.Delta](queue.Options{Events: 4 * inFlight, Bytes: 1 << 30, InFlight: inFlight}, nil)
	lane := q.Lane("pods")
	return bustest.StartLoad(tb, bus, q, func(it *queue.Item[*object.Delta]) *object.Delta { return it.Value },
		func(ctx context.Context, d *object.Delta) error {
			return lane.Put(ctx, d.Ref.Key, 1, d)
		}, pace)
}
