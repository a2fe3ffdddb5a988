package fromnats_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// runner is a Run and the events that it has handled.
type runner struct {
	mu      sync.Mutex
	handled []int
	cancel  context.CancelFunc
	done    chan error
}

var errStop = errors.New("stopped by the test")

// run starts a Run. before is called with each number before the number is recorded as handled; nil
// does nothing.
func run(tb testing.TB, o fromnats.RunOptions, before func(ctx context.Context, n int) error) *runner {
	tb.Helper()
	ctx, cancel := context.WithCancelCause(tb.Context())
	r := &runner{cancel: func() { cancel(errStop) }, done: make(chan error, 1)}
	go func() {
		r.done <- fromnats.Run(ctx, o, func(ctx context.Context, e *consume.Event) error {
			n := int(number(e.Sequence))
			if before != nil {
				if err := before(ctx, n); err != nil {
					return err
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.handled = append(r.handled, n)
			return nil
		})
	}()
	tb.Cleanup(r.cancel)
	return r
}

func (r *runner) numbers() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int(nil), r.handled...)
}

func (r *runner) stop(tb testing.TB) {
	tb.Helper()
	r.cancel()
	if err := <-r.done; !errors.Is(err, errStop) {
		tb.Errorf("Run returned %v, want the context's cause", err)
	}
}

// inOrder compares got without duplicates with the numbers from..to in order, and returns the
// difference.
func inOrder(got []int, from, to int) string {
	highest := from - 1
	var news []int
	for _, n := range got {
		if n > highest {
			highest = n
			news = append(news, n)
		}
	}
	return cmp.Diff(numbers(from, to), news)
}

func TestRun(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	put(t, js, 1, 50)
	o := fromnats.RunOptions{Durable: "billing", AckWait: 10 * time.Minute} // nothing may wait for it
	o.URL, o.Start = b.ClientURL(), consume.Beginning()

	// If the handler fails, it receives the event again, before later ones.
	refused := 0
	r := run(t, o, func(_ context.Context, n int) error {
		if n == 20 && refused < 3 {
			refused++
			return errors.New("the database is away")
		}
		return nil
	})
	until(t, "50 events", func() bool { return len(r.numbers()) >= 50 })
	r.stop(t)
	if diff := cmp.Diff(numbers(1, 50), r.numbers()); diff != "" || refused != 3 {
		t.Errorf("refused %d times; -want +got\n%s", refused, diff)
	}

	// Run stops while it handles an event and others are in flight. The next Run resumes with that
	// event, immediately and in order.
	put(t, js, 51, 150)
	r = run(t, o, func(ctx context.Context, n int) error {
		if n == 60 {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	})
	until(t, "59", func() bool { return len(r.numbers()) == 9 })
	r.stop(t)
	put(t, js, 151, 160)
	next := run(t, o, nil)
	until(t, "160", func() bool { n := next.numbers(); return len(n) > 0 && n[len(n)-1] == 160 })
	if diff := inOrder(append(r.numbers(), next.numbers()...), 51, 160); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	// The server restarts.
	b.stop()
	b.start()
	put(t, js, 161, 400)
	until(t, "400", func() bool { n := next.numbers(); return n[len(n)-1] == 400 })
	next.stop(t)
	if diff := inOrder(next.numbers(), next.numbers()[0], 400); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	info, err := stream.Consumer(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "everything is acknowledged", func() bool {
		i, err := info.Info(t.Context())
		return err == nil && i.NumAckPending == 0 && i.AckFloor.Stream == 400
	})
}

// The server loses its last records while Run is connected, because it is restored from a backup or
// loses power before an fsync. New records then have sequences that Run has already handled. The
// handler receives them.
func TestRunAfterTheStreamLostRecords(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	put(t, js, 1, 5)
	o := fromnats.RunOptions{Durable: "svc"}
	o.URL, o.Start = b.ClientURL(), consume.Beginning()
	r := run(t, o, nil)
	until(t, "five acknowledged events", func() bool {
		c, err := stream.Consumer(t.Context(), "svc")
		return err == nil && c.CachedInfo().AckFloor.Stream == 5
	})
	b.stop()
	backup := t.TempDir()
	if err := os.CopyFS(backup, os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	b.start()
	put(t, js, 6, 10)
	until(t, "event 10", func() bool { return slices.Contains(r.numbers(), 10) })
	b.stop()
	if err := errors.Join(os.RemoveAll(b.dir), os.CopyFS(b.dir, os.DirFS(backup))); err != nil {
		t.Fatal(err)
	}
	b.start()
	put(t, js, 101, 107) // sequences 6 to 12
	until(t, "event 107", func() bool { return slices.Contains(r.numbers(), 107) })
	r.stop(t)
	if diff := inOrder(r.numbers()[slices.Index(r.numbers(), 10)+1:], 101, 107); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A handler that takes longer than AckWait does not receive the same event again meanwhile.
func TestRunSlowHandler(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 5)
	o := fromnats.RunOptions{Durable: "slow", AckWait: 300 * time.Millisecond}
	o.URL, o.Start = b.ClientURL(), consume.Beginning()
	r := run(t, o, func(_ context.Context, n int) error {
		if n == 2 {
			<-time.After(3 * 300 * time.Millisecond) // the time that it works
		}
		return nil
	})
	until(t, "5 events", func() bool { return len(r.numbers()) >= 5 })
	put(t, js, 6, 6)
	until(t, "6 events", func() bool { return len(r.numbers()) >= 6 })
	r.stop(t)
	if diff := cmp.Diff(numbers(1, 6), r.numbers()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Events that wait in the client for longer than AckWait are delivered twice and handled once, even
// if a filter leaves gaps between their sequences.
func TestRunHandlesOnceWhatComesTwice(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	for n := 1; n <= 12; n++ { // one of 512 is asked for
		put(t, js, 3*n, 3*n)
		skip(t, js, 511)
	}
	o := fromnats.RunOptions{Durable: "twice", AckWait: 300 * time.Millisecond}
	o.URL = b.ClientURL()
	o.Start = consume.Beginning()
	o.Subjects = []string{"kubecdc.*.object.>"}
	r := run(t, o, func(ctx context.Context, n int) error {
		if n > 3 {
			return nil
		}
		// Wait until the server has redelivered the events after it.
		for {
			c, err := stream.Consumer(ctx, "twice")
			if err != nil {
				return err
			}
			if c.CachedInfo().NumRedelivered >= 11 {
				return nil
			}
		}
	})
	until(t, "12 events", func() bool { return len(r.numbers()) >= 12 })
	put(t, js, 39, 39)
	until(t, "what comes behind them", func() bool { return slices.Contains(r.numbers(), 39) })
	r.stop(t)
	var want []int
	for n := 1; n <= 13; n++ {
		want = append(want, 3*n)
	}
	if diff := cmp.Diff(want, r.numbers()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// skip publishes n records that nobody asks for.
func skip(tb testing.TB, js jetstream.JetStream, n int) {
	tb.Helper()
	for range n {
		if _, err := js.Publish(tb.Context(), "kubecdc.other", nil); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestRunInvalidRecord(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	if _, err := js.Publish(t.Context(), "kubecdc.x",
		[]byte(`{"specversion":"1.0","id":"1","source":"s","type":"other"}`)); err != nil {
		t.Fatal(err)
	}
	put(t, js, 1, 1)
	o := fromnats.RunOptions{Durable: "d"}
	o.URL, o.Start = b.ClientURL(), consume.Beginning()
	err := fromnats.Run(t.Context(), o, func(context.Context, *consume.Event) error { return nil })
	if !errors.Is(err, consume.ErrNotKubecdc) ||
		!strings.Contains(err.Error(), "run consumer d: stream KUBECDC, record 1 (kubecdc.x): ") {
		t.Errorf("error %v", err)
	}
	var passed error
	o.OnInvalid = func(err error) error {
		passed = err
		return nil
	}
	r := run(t, o, nil)
	until(t, "the record behind it", func() bool { return len(r.numbers()) == 1 })
	r.stop(t)
	var record *consume.RecordError
	if !errors.Is(passed, consume.ErrNotKubecdc) || !errors.As(passed, &record) {
		t.Errorf("OnInvalid was told %v", passed)
	}
}

func TestRunErrors(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable:   "other",
		AckPolicy: jetstream.AckNonePolicy,
	}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ stream, durable, want string }{
		{"", "", "run consumer: RunOptions.Durable has no name"},
		{"NONE", "d", "no stream NONE at " + b.ClientURL() + ": there are KUBECDC"},
		{
			"", "other",
			"consumer other has another acknowledgement policy (AckNone): choose another name for RunOptions.Durable",
		},
		{"", "a.b", "a.b"},
	} {
		o := fromnats.RunOptions{Durable: tc.durable}
		o.URL, o.Stream = b.ClientURL(), tc.stream
		err := fromnats.Run(t.Context(), o, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v\nwant  %s", err, tc.want)
		}
	}

	o := fromnats.RunOptions{Durable: "gone"}
	o.URL = b.ClientURL()
	r := run(t, o, nil)
	until(t, "the consumer waits", func() bool {
		c, err := stream.Consumer(t.Context(), "gone")
		return err == nil && c.CachedInfo().NumWaiting > 0
	})
	if err := stream.DeleteConsumer(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	err := <-r.done
	if err == nil || !strings.Contains(err.Error(), "it was deleted, and its position with it") {
		t.Errorf("error %v", err)
	}
}
