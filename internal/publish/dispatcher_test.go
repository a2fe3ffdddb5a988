package publish_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// fakeBus is an encoder and a publisher that record their events.
type fakeBus struct {
	mu        sync.Mutex
	published []string
	acked     []string
}

func (b *fakeBus) Encode(ev *encode.Event, d *object.Delta) error {
	ev.Reset()
	ev.Delta = d
	ev.ID = fmt.Appendf(nil, "%s/%d", d.Ref.Name(), d.ResourceVersion)
	ev.Body = append(ev.Body, "{}"...)
	return nil
}

func (b *fakeBus) EncodeShort(*encode.Event, *object.Delta, encode.Short) error {
	return errors.New("nothing is too large")
}

func (b *fakeBus) EncodeWhole(*encode.Event, *object.Delta) error {
	return errors.New("nothing is too large")
}

func (b *fakeBus) Publish(e *publish.Event) {
	b.take(e.Event)
	e.Done(nil)
}

func (b *fakeBus) take(ev *encode.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published = append(b.published, string(ev.ID))
}

func (*fakeBus) Run(context.Context) error { return nil }
func (*fakeBus) Ready() error              { return nil }

func (b *fakeBus) Acked(d *object.Delta) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked = append(b.acked, fmt.Sprintf("%s/%d", d.Ref.Name(), d.ResourceVersion))
}

func (b *fakeBus) put(t *testing.T, q *queue.Queue[*object.Delta], name string, rv int) {
	t.Helper()
	d := event(name, rv, "").Delta
	d.Acker = b
	if err := q.Lane("pods").Put(t.Context(), "pods/shop/"+name, 1, d); err != nil {
		t.Fatal(err)
	}
}

func value(it *queue.Item[*object.Delta]) *object.Delta { return it.Value }

func newQueue() *queue.Queue[*object.Delta] {
	return queue.New[*object.Delta](queue.Options{Events: 100, Bytes: 1 << 20}, nil)
}

func TestDispatcherDrainsAClosedQueue(t *testing.T) {
	q, bus := newQueue(), new(fakeBus)
	for i := range 5 {
		bus.put(t, q, "web-1", i+1)
	}
	q.Close()
	if err := publish.NewDispatcher(q, value, bus, bus, publish.Options{}, discard, nil).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"web-1/1", "web-1/2", "web-1/3", "web-1/4", "web-1/5"}
	if d := cmp.Diff([][]string{want, want}, [][]string{bus.published, bus.acked}); d != "" {
		t.Error(d)
	}
	if q.Len() != 0 {
		t.Errorf("%d items are still held", q.Len())
	}
}

func TestDispatcherEndsWithTheGracePeriod(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	blocked := busFunc(func(context.Context, *encode.Event) error {
		cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	q, bus := newQueue(), new(fakeBus)
	bus.put(t, q, "web-1", 1)
	err := publish.NewDispatcher(q, value, bus, blocked, publish.Options{}, discard, nil).Run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context canceled", err)
	}
	if len(bus.acked) != 0 || q.Len() != 1 {
		t.Error("an event that was given up counts as acknowledged")
	}
}

// largeBus encodes events of a size that their deltas do not suggest, like those with a large
// patch.
type largeBus struct {
	*fakeBus
	size int
}

func (b largeBus) Encode(ev *encode.Event, d *object.Delta) error {
	err := b.fakeBus.Encode(ev, d)
	ev.Body = append(ev.Body, make([]byte, b.size)...)
	return err
}

// The dispatcher corrects an event's weight in flight after it is encoded; it does not call the
// queue for a small difference.
func TestDispatcherTellsTheQueueHowLargeEventsAre(t *testing.T) {
	for _, tc := range []struct {
		size, copies int
		least, most  int64
	}{
		{size: 100, copies: 3, least: 7, most: 7}, // the estimate stays
		{size: 1 << 20, copies: 1, least: 1 << 20, most: 3 << 19},
		{size: 1 << 20, copies: 3, least: 3 << 20, most: 9 << 19},
	} {
		var inFlight int64
		q, bus := newQueue(), largeBus{new(fakeBus), tc.size}
		q.WeighBy(func(*object.Delta) int64 { return 7 })
		publisher := busFunc(func(context.Context, *encode.Event) error {
			inFlight = q.Stats().InflightBytes
			return nil
		})
		bus.put(t, q, "web-1", 1)
		q.Close()
		if err := publish.NewDispatcher(q, value, bus, publisher, publish.Options{Copies: tc.copies}, discard, nil).
			Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if inFlight < tc.least || inFlight > tc.most {
			t.Errorf("an event of %d bytes, held %d times: %d bytes in flight, want %d to %d", tc.size, tc.copies,
				inFlight, tc.least, tc.most)
		}
	}
}

// resizes is a queue that records the calls of Resize.
type resizes struct {
	*queue.Queue[*object.Delta]
	bytes []int64
}

func (q *resizes) Resize(it *queue.Item[*object.Delta], bytes int64) {
	q.bytes = append(q.bytes, bytes)
	q.Queue.Resize(it, bytes)
}

// exactBus encodes events whose bytes in memory are exactly size.
type exactBus struct {
	*fakeBus
	size int64
}

func (b exactBus) Encode(ev *encode.Event, d *object.Delta) error {
	err := b.fakeBus.Encode(ev, d)
	ev.Body = make([]byte, b.size)
	return err
}

// The dispatcher does not call the queue for an estimate that is too low by up to a quarter and
// 32 KiB. Nor does it for an event that has at least half of its estimate, less 32 KiB.
func TestDispatcherToleratesAnEstimate(t *testing.T) {
	large := event("web-1", 1, "").Delta
	large.ChangedBy = make([]byte, 1<<20)
	estimate := publish.Weigh(large, 1)
	if estimate < 1<<20 || estimate > 1<<20+10_000 || publish.Weigh(large, 3) != 3*estimate {
		t.Fatalf("a delta of 1 MiB is estimated at %d bytes, three copies at %d", estimate, publish.Weigh(large, 3))
	}
	most, least := estimate+estimate/4+tolerated, estimate/2-tolerated
	for _, c := range []struct {
		size    int64
		resized bool
	}{{estimate, false}, {most, false}, {most + 1, true}, {least, false}, {least - 1, true}} {
		q, bus := &resizes{Queue: newQueue()}, exactBus{new(fakeBus), c.size}
		if err := q.Lane("pods").Put(t.Context(), large.Ref.Key, 1, large); err != nil {
			t.Fatal(err)
		}
		q.Close()
		if err := publish.NewDispatcher(q, value, bus, bus, publish.Options{}, discard, nil).
			Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var want []int64
		if c.resized {
			want = []int64{c.size}
		}
		if diff := cmp.Diff(want, q.bytes); diff != "" {
			t.Errorf("an estimate of %d bytes for an event of %d: %s", estimate, c.size, diff)
		}
	}
}

// A resource that the bus does not take, for example because its topic is missing, does not occupy
// all workers: others pass. Once the bus takes it, all of its events pass too.
func TestDispatcherGoesOnBesideABlockedResource(t *testing.T) {
	const blocked = 600
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[*object.Delta](queue.Options{Events: 2000, Bytes: 1 << 20, InFlight: publish.InFlight}, nil)
		bus, made := new(fakeBus), make(chan struct{})
		publisher := busFunc(func(ctx context.Context, ev *encode.Event) error {
			if strings.HasPrefix(string(ev.ID), "web-") {
				select {
				case <-made:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			bus.take(ev)
			return nil
		})
		done := make(chan error, 1)
		go func() {
			done <- publish.NewDispatcher(q, value, bus, publisher, publish.Options{}, discard, nil).Run(t.Context())
		}()
		for i := range blocked {
			bus.put(t, q, fmt.Sprint("web-", i), 1)
		}
		synctest.Wait()
		for i := range 10 {
			d := event("settings", i+1, "").Delta
			d.Acker = bus
			if err := q.Lane("configmaps").Put(t.Context(), "configmaps/shop/settings", 1, d); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		bus.mu.Lock()
		got := len(bus.acked)
		bus.mu.Unlock()
		if got != 10 {
			t.Errorf("%d of 10 events of another resource are acknowledged", got)
		}
		close(made)
		q.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := len(bus.acked); got != blocked+10 {
			t.Errorf("%d events are acknowledged at the end, want %d", got, blocked+10)
		}
	})
}

// busFunc is a Bus that calls a function for each event, in a goroutine of its own.
type busFunc func(context.Context, *encode.Event) error

func (f busFunc) Publish(e *publish.Event) {
	go func() { e.Done(f(context.Background(), e.Event)) }()
}

func (busFunc) Run(context.Context) error { return nil }
func (busFunc) Ready() error              { return nil }

func TestDispatcherIntoJetStream(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	q, bus := newQueue(), new(fakeBus)
	done := make(chan error, 1)
	go func() {
		done <- publish.NewDispatcher(q, value, bus, r.Bus, publish.Options{}, discard, nil).Run(t.Context())
	}()
	for rv := range 20 {
		for k := range 30 {
			bus.put(t, q, fmt.Sprintf("web-%d", k), rv+1)
		}
	}
	q.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := len(records(t, admin(t, s.ClientURL()), "KUBECDC")); got != 600 {
		t.Errorf("got %d records, want 600", got)
	}
}

func TestClosedPipeEndsTheAgent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer func() { _ = w.Close() }()
	q, bus := newQueue(), new(fakeBus)
	bus.put(t, q, "web-1", 1)
	b := stdout.New(w, nil)
	runBus(t, b)
	err = publish.NewDispatcher(q, value, bus, b, publish.Options{}, discard, nil).Run(t.Context())
	if !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v, want EPIPE", err)
	}
}

func TestMetricsAreWellNamed(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	if err := r.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	families, err := r.Reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 || len(families) < 5 {
		t.Errorf("%d families, error %v, problems %v", len(families), err, problems)
	}
}
