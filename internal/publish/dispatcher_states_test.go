package publish_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A connection that breaks with events of several resources on it isolates all of them, and
// together they have all that one of the lanes may have in flight. Each is sent alone in the end.
func TestIsolatedEventsOfSeveralLanes(t *testing.T) {
	const inFlight, first, second = 12, 20, 5
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[*object.Delta](queue.Options{Events: 100, Bytes: 1 << 20, InFlight: inFlight}, nil)
		b := new(fakeBus)
		put := func(lane, name string) {
			d := event(name, 1, "").Delta
			d.Acker = b
			if err := q.Lane(lane).Put(t.Context(), name, 1, d); err != nil {
				t.Error(err)
			}
		}
		cut := make(chan struct{})
		bus := eventFunc(func(e *publish.Event) {
			go func() {
				<-cut
				if e.Alone {
					b.take(e.Event)
					e.Done(nil)
					return
				}
				e.Done(&publish.RetryError{Reason: publish.ReasonConnection, Alone: true, Err: errors.New("cut")})
			}()
		})
		d := publish.NewDispatcher(q, value, b, bus, publish.Options{}, discard, nil)
		done := make(chan error, 1)
		go func() { done <- d.Run(t.Context()) }()
		for i := range first {
			put("pods", fmt.Sprint("pod-", i))
		}
		synctest.Wait() // they fill their lane's share before the second begins
		for i := range second {
			put("configmaps", fmt.Sprint("map-", i))
		}
		synctest.Wait()
		close(cut)
		q.Close()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Hour):
			t.Fatalf("after an hour %d of %d events are on the bus, and %d are stuck", len(b.published), first+second,
				len(d.Stuck()))
		}
		if len(b.acked) != first+second {
			t.Errorf("%d of %d events are acknowledged", len(b.acked), first+second)
		}
	})
}

// eventFunc is a Bus that calls a function with each event.
type eventFunc func(*publish.Event)

func (f eventFunc) Publish(e *publish.Event) { f(e) }
func (eventFunc) Run(context.Context) error  { return nil }
func (eventFunc) Ready() error               { return nil }

// Deltas that are still in the queue when the grace period ends are an error, even if nothing is
// in flight at that moment.
func TestDispatcherThatLeavesDeltasBehindSaysSo(t *testing.T) {
	over := errors.New("the grace period is over")
	ctx, end := context.WithCancelCause(t.Context())
	q, b := newQueue(), new(fakeBus)
	b.put(t, q, "web-1", 1)
	b.put(t, q, "web-1", 2)
	bus := eventFunc(func(e *publish.Event) {
		end(over)
		e.Done(nil)
	})
	err := publish.NewDispatcher(q, value, b, bus, publish.Options{}, discard, nil).Run(ctx)
	if !errors.Is(err, over) || q.Len() != 1 {
		t.Errorf("got %v with %d deltas left, want %v", err, q.Len(), over)
	}
}

// An event that is put aside whole counts as such, although the event that was tried before has
// given up most of it.
func TestClaimCountsAsTheWholeEvent(t *testing.T) {
	j := newJournal()
	d := change(j, "web-1", 7, 1<<20)
	d.After = change(j, "web-1", 7, 10_000).After
	q := newQueue()
	q.WeighBy(func(d *object.Delta) int64 { return publish.Weigh(d, 1) })
	if err := q.Lane("pods").Put(t.Context(), d.Ref.Key, 1, d); err != nil {
		t.Fatal(err)
	}
	q.Close()
	var inFlight int64
	claims := &claimStore{j: j, err: func(string) error { inFlight = q.Stats().InflightBytes; return nil }}
	bus := &recorder{j: j, name: "bus", refuse: tooLarge(5_000)}
	if err := publish.NewDispatcher(q, value, newEncoder(encode.Structured), bus,
		publish.Options{Oversize: allOversize, Claims: claims}, discard, nil).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if inFlight < 1<<20 {
		t.Errorf("%d bytes in flight while an event of more than 1 MB is put aside", inFlight)
	}
}

// An event that waits for another attempt keeps its place in flight, and none of its bytes.
func TestRetriedEventFreesItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, tries := newJournal(), 0
		taker := &recorder{j: j, name: "bus", refuse: func(*consume.Event, int) error {
			tries++
			if tries == 1 {
				return &publish.RetryError{
					Reason: publish.ReasonStreamFull,
					After:  time.Minute,
					Err:    errors.New("full"),
				}
			}
			return nil
		}}
		q := newQueue()
		q.WeighBy(func(d *object.Delta) int64 { return publish.Weigh(d, 1) })
		d := change(j, "web-1", 7, 10)
		if err := q.Lane("pods").Put(t.Context(), d.Ref.Key, 1, d); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			done <- publish.NewDispatcher(q, value, newEncoder(encode.Structured), taker, publish.Options{}, discard,
				nil).Run(t.Context())
		}()
		synctest.Wait()
		if s := q.Stats(); s.Inflight != 1 || s.InflightBytes != 0 {
			t.Errorf("%d events and %d bytes are in flight, want 1 and 0", s.Inflight, s.InflightBytes)
		}
		q.Close()
		if err := <-done; err != nil || tries != 2 {
			t.Errorf("ended with %v after %d attempts", err, tries)
		}
	})
}

// If ctx ends before the queue is drained, the error has the number of events that the bus has not
// acknowledged.
func TestDispatcherSaysHowManyEventsAreNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("the grace period is over")
		ctx, end := context.WithCancelCause(t.Context())
		q, b := newQueue(), new(fakeBus)
		for i := range 3 {
			b.put(t, q, fmt.Sprint("web-", i), 1)
			b.put(t, q, fmt.Sprint("silent-", i), 1)
		}
		bus := eventFunc(func(e *publish.Event) {
			if strings.HasPrefix(string(e.ID), "web-") {
				e.Done(nil)
			}
		})
		done := make(chan error, 1)
		go func() {
			done <- publish.NewDispatcher(q, value, b, bus, publish.Options{}, discard, nil).Run(ctx)
		}()
		synctest.Wait()
		end(over)
		err := <-done
		if !errors.Is(err, over) || !strings.Contains(err.Error(), "with 3 events that the bus has not acknowledged") {
			t.Errorf("got %v, want 3 events", err)
		}
		if len(b.acked) != 3 || q.Len() != 3 {
			t.Errorf("%d are acknowledged, %d are left", len(b.acked), q.Len())
		}
	})
}

// The pauses between the attempts at one event double, from 100 ms to 5 s. Those of an event that
// is sent alone go from 1 s to 5 min; the first attempt to send it alone has none.
func TestPausesBetweenAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		alone       bool
		first, last time.Duration // the longest; a random half is taken off
	}{
		"event":          {first: 100 * time.Millisecond, last: 5 * time.Second},
		"isolated event": {alone: true, first: time.Second, last: 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const attempts = 20
				var at []time.Time
				bus := eventFunc(func(e *publish.Event) {
					if e.Alone == c.alone {
						at = append(at, time.Now())
					}
					if len(at) == attempts {
						e.Done(nil)
						return
					}
					e.Done(&publish.RetryError{Alone: c.alone, Err: errors.New("not now")})
				})
				q, b := newQueue(), new(fakeBus)
				began := time.Now()
				b.put(t, q, "web-1", 1)
				q.Close()
				if err := publish.NewDispatcher(q, value, b, bus, publish.Options{}, discard, nil).
					Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !at[0].Equal(began) {
					t.Errorf("the first attempt is %s late", at[0].Sub(began))
				}
				for pause, longest := range map[time.Duration]time.Duration{
					at[1].Sub(at[0]):                   c.first,
					at[attempts-1].Sub(at[attempts-2]): c.last,
				} {
					if pause < longest/2 || pause > longest {
						t.Errorf("a pause of %s, want %s to %s", pause, longest/2, longest)
					}
				}
			})
		})
	}
}
