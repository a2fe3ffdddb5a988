package publish_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// fakeBus is an encoder and a publisher that fail as told, and write down what went through.
type fakeBus struct {
	mu        sync.Mutex
	fail      func(name string, attempt int) error // of Publish
	encoding  func(name string, attempt int) error
	attempts  map[string]int
	published []string
	acked     []string
}

func (b *fakeBus) Encode(ev *encode.Event, d *object.Delta) error {
	ev.Reset()
	ev.Delta = d
	ev.ID = fmt.Appendf(nil, "%s/%d", d.Ref.Name(), d.ResourceVersion)
	ev.Body = append(ev.Body, "{}"...)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attempts == nil {
		b.attempts = map[string]int{}
	}
	b.attempts[string(ev.ID)]++
	if b.encoding != nil {
		return b.encoding(string(ev.ID), b.attempts[string(ev.ID)])
	}
	return nil
}

func (b *fakeBus) Publish(ctx context.Context, ev *encode.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		if err := b.fail(string(ev.ID), b.attempts[string(ev.ID)]); err != nil {
			return err
		}
	}
	b.published = append(b.published, string(ev.ID))
	return nil
}

func (b *fakeBus) Acked(d *object.Delta) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked = append(b.acked, fmt.Sprintf("%s/%d", d.Ref.Name(), d.ResourceVersion))
}

// went is what was published and what was acknowledged so far.
func (b *fakeBus) went() (published, acked []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.published), slices.Clone(b.acked)
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

func TestPumpDrainsAClosedQueue(t *testing.T) {
	q, bus := newQueue(), new(fakeBus)
	for i := range 5 {
		bus.put(t, q, "web-1", i+1)
	}
	q.Close()
	if err := publish.NewPump(q, value, bus, bus, 3, discard, nil).Run(t.Context()); err != nil {
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

// One worker, and two objects that cannot be published for a while: others go on, and each object's order holds.
func TestRefusedEventHoldsUpOnlyItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &fakeBus{
			encoding: func(id string, attempt int) error {
				if id == "broken/1" && attempt < 4 {
					return errors.New("no uid")
				}
				return nil
			},
			fail: func(id string, attempt int) error {
				if id == "large/1" && attempt < 3 {
					return fmt.Errorf("publish %s: %w: too large", id, publish.ErrRefused)
				}
				return nil
			},
		}
		q, log, reg := newQueue(), new(logBuffer), prometheus.NewRegistry()
		for rv := range 2 {
			for _, name := range []string{"broken", "large", "web-1"} {
				bus.put(t, q, name, rv+1)
			}
		}
		done := make(chan error, 1)
		p := publish.NewPump(q, value, bus, bus, 1, log.logger(), publish.NewMetrics(reg))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		if published, _ := bus.went(); !slices.Equal(published, []string{"web-1/1", "web-1/2"}) {
			t.Errorf("published %v", published)
		}
		if got := (&running{reg: reg}).metric(t, "kubecdc_publish_parked_events", ""); got != 2 {
			t.Errorf("got %v parked events, want 2", got)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		want := []string{"web-1/1", "web-1/2", "large/1", "large/2", "broken/1", "broken/2"}
		if _, acked := bus.went(); !slices.Equal(acked, want) {
			t.Errorf("acknowledged %v, want %v", acked, want)
		}
		if got := lines(log.String(), "event cannot be published"); got != 2 {
			t.Errorf("got %d log lines, want one for each reason:\n%s", got, log)
		}
		q.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPumpTellsWhatItLeavesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &fakeBus{encoding: func(id string, _ int) error {
			if id == "broken/1" {
				return errors.New("no uid")
			}
			return nil
		}}
		q := newQueue()
		bus.put(t, q, "broken", 1)
		bus.put(t, q, "web-1", 1)
		q.Close()
		err := publish.NewPump(q, value, bus, bus, 4, discard, nil).Run(t.Context())
		if err == nil || err.Error() != "1 events could not be published and stay unacknowledged" {
			t.Errorf("got %v", err)
		}
		if got := bus.attempts["broken/1"]; got != 2 {
			t.Errorf("the refused event was tried %d times, want once more at the end", got)
		}
		if d := cmp.Diff([]string{"web-1/1"}, bus.acked); d != "" {
			t.Error(d)
		}
	})
}

func TestPumpEndsWithTheGracePeriod(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	blocked := publisherFunc(func(ctx context.Context, _ *encode.Event) error {
		cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	q, bus := newQueue(), new(fakeBus)
	bus.put(t, q, "web-1", 1)
	err := publish.NewPump(q, value, bus, blocked, 4, discard, nil).Run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context canceled", err)
	}
	if len(bus.acked) != 0 || q.Len() != 1 {
		t.Error("an event that was given up counts as acknowledged")
	}
}

type publisherFunc func(context.Context, *encode.Event) error

func (f publisherFunc) Publish(ctx context.Context, ev *encode.Event) error { return f(ctx, ev) }

func TestPumpIntoJetStream(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	q, bus := newQueue(), new(fakeBus)
	done := make(chan error, 1)
	go func() { done <- publish.NewPump(q, value, bus, r, 16, discard, nil).Run(t.Context()) }()
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

func TestStdoutWritesJSONLines(t *testing.T) {
	var b bytes.Buffer
	p := publish.NewStdout(&b)
	for _, body := range []string{`{"id":"1"}`, "{\n \"id\": \"2\\n\"\n}"} {
		if err := p.Publish(t.Context(), event("web-1", 1, body)); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff("{\"id\":\"1\"}\n{\"id\":\"2\\n\"}\n", b.String()); d != "" {
		t.Error(d)
	}
}

func TestStdoutLinesDoNotMix(t *testing.T) {
	var b bytes.Buffer
	p := publish.NewStdout(&b)
	line := strings.Repeat("x", 5000)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				if err := p.Publish(t.Context(), event("web-1", 1, line)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := strings.Count(b.String(), line+"\n"); got != 320 {
		t.Errorf("got %d whole lines, want 320", got)
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
	err = publish.NewPump(q, value, bus, publish.NewStdout(w), 4, discard, nil).Run(t.Context())
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
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 || len(families) < 5 {
		t.Errorf("%d families, error %v, problems %v", len(families), err, problems)
	}
}
