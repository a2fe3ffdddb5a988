package nats_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// BenchmarkPublish compares the bus with nats.go's asynchronous publisher under the same interface,
// with as many events of 4 KB in flight. The embedded server shares the processor.
func BenchmarkPublish(b *testing.B) {
	b.Run("bus", func(b *testing.B) {
		s := bustest.StartServer(b, b.TempDir(), -1)
		r := bustest.RunNATS(b, bustest.NATSConfig(s.ClientURL()))
		bustest.Wait(b, "the bus", func() bool { return r.Ready() == nil })
		benchmark(b, r.Bus)
	})
	b.Run("nats.go-async", func(b *testing.B) {
		s := bustest.StartServer(b, b.TempDir(), -1)
		benchmark(b, newAsyncBus(b, s.ClientURL()))
	})
}

// BenchmarkDuplicates publishes events that the stream has, as an agent does after a restart.
func BenchmarkDuplicates(b *testing.B) {
	s := bustest.StartServer(b, b.TempDir(), -1)
	r := bustest.RunNATS(b, bustest.NATSConfig(s.ClientURL()))
	bustest.Wait(b, "the bus", func() bool { return r.Ready() == nil })
	body := fmt.Sprintf("{%q:%q}", "pad", strings.Repeat("x", 4<<10))
	inFlight := make(chan struct{}, publish.InFlight)
	publishAll := func() {
		for i := range b.N {
			inFlight <- struct{}{}
			r.Bus.Publish(publish.NewEvent(bustest.Event(fmt.Sprint("web-", i), 1, body), func(err error) {
				if err != nil {
					b.Error(err)
				}
				<-inFlight
			}, nil))
		}
		for range cap(inFlight) {
			inFlight <- struct{}{}
		}
		for range cap(inFlight) {
			<-inFlight
		}
	}
	publishAll()
	b.ReportAllocs()
	cpu := bustest.ProcessCPU(b)
	b.ResetTimer()
	publishAll()
	bustest.Report(b, cpu)
	if got := r.Metric(b, "kubecdc_publish_duplicates_total", ""); got != float64(b.N) {
		b.Errorf("%v of %d events were duplicates", got, b.N)
	}
}

func benchmark(b *testing.B, bus publish.Bus) {
	b.Helper()
	body := strings.Repeat("x", 4<<10)
	free := make(chan *publish.Event, publish.InFlight)
	for k := range publish.InFlight {
		var e *publish.Event
		e = publish.NewEvent(bustest.Event(fmt.Sprintf("web-%d", k), 1, body), func(err error) {
			if err != nil {
				b.Error(err)
			}
			free <- e
		}, nil)
		free <- e
	}
	b.ReportAllocs()
	cpu := bustest.ProcessCPU(b)
	b.ResetTimer()
	for i := range b.N {
		e := <-free
		e.ID = fmt.Appendf(e.ID[:0], "pods/uid/%d", i)
		bus.Publish(e)
	}
	for range publish.InFlight {
		<-free
	}
	bustest.Report(b, cpu)
}

// asyncBus is the experiment of docs/decisions/0023-own-acknowledgement-path.md: PublishMsgAsync as
// a Bus. It has no fence, no check of the stream and no isolation, and does not record the events
// in flight when a connection breaks.
type asyncBus struct {
	js       jetstream.JetStream
	subjects *subject.Template

	mu     sync.Mutex
	events map[*nats.Msg]*publish.Event
}

func newAsyncBus(b *testing.B, url string) *asyncBus {
	b.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	a := &asyncBus{events: map[*nats.Msg]*publish.Event{}}
	a.subjects, err = subject.New("", "prod-eu-1")
	if err != nil {
		b.Fatal(err)
	}
	a.js, err = jetstream.New(nc,
		jetstream.WithPublishAsyncMaxPending(2*publish.InFlight), // the caller bounds the events
		jetstream.WithPublishAsyncAckHandler(
			func(_ jetstream.JetStream, m *nats.Msg, _ *jetstream.PubAck) { a.done(m, nil) }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) { a.done(m, err) }),
	)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := a.js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, Discard: jetstream.DiscardNew, AllowDirect: true,
	}); err != nil {
		b.Fatal(err)
	}
	return a
}

func (a *asyncBus) done(m *nats.Msg, err error) {
	a.mu.Lock()
	e := a.events[m]
	delete(a.events, m)
	a.mu.Unlock()
	e.Done(err)
}

// Publish implements publish.Bus.
func (a *asyncBus) Publish(e *publish.Event) {
	m := nats.NewMsg(string(a.subjects.Append(nil, e.Delta)))
	m.Data = e.Body
	m.Header["content-type"] = []string{e.ContentType}
	a.mu.Lock()
	a.events[m] = e
	a.mu.Unlock()
	if _, err := a.js.PublishMsgAsync(m, jetstream.WithMsgID(publishedID(e.Event))); err != nil {
		a.done(m, err)
	}
}

// Run implements publish.Bus.
func (*asyncBus) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Ready implements publish.Bus.
func (*asyncBus) Ready() error { return nil }
