package publish_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// modelBus ends events as a schedule says, later and in any order, and checks what the dispatcher hands it.
type modelBus struct {
	mu       sync.Mutex
	draw     func(n int) int // one of n outcomes, as the schedule has it
	flying   map[string]*publish.Event
	alone    int
	closed   bool
	stuck    bool // it takes nothing: a bus that is away
	bytes    int
	most     int // bytes in flight at a time
	mostOf   int // events in flight at a time
	mistakes []string
	// order has for each key the versions that the bus has taken, and for each event what ended it.
	order map[string][]uint64
	ended map[string]string
}

func (b *modelBus) mistake(format string, args ...any) {
	b.mistakes = append(b.mistakes, fmt.Sprintf(format, args...))
}

// keyOfEvent is the key that the queue has the event's delta under.
func keyOfEvent(ev *publish.Event) string {
	if d := ev.Delta; d.Stream == nil {
		return d.Ref.Key
	}
	return "stream:" + ev.Delta.Stream.Scope
}

func (b *modelBus) Publish(e *publish.Event) {
	b.mu.Lock()
	key := keyOfEvent(e)
	if b.flying[key] != nil {
		b.mistake("two events of %s are in flight", key)
	}
	if e.Alone {
		if b.alone++; b.alone > 1 {
			b.mistake("%d events that are sent alone are in flight", b.alone)
		}
	}
	if b.closed {
		b.mu.Unlock()
		e.Done(publish.ErrClosed)
		return
	}
	b.flying[key] = e
	b.bytes += e.Size()
	b.most, b.mostOf = max(b.most, b.bytes), max(b.mostOf, len(b.flying))
	b.mu.Unlock()
}

func (*modelBus) Ready() error { return nil }

// Run ends events until ctx ends, and then all that are in flight.
func (b *modelBus) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		b.mu.Lock()
		pause, n := time.Duration(b.draw(20))*time.Millisecond, b.draw(8)
		stuck := b.stuck
		b.mu.Unlock()
		select {
		case <-time.After(pause + time.Millisecond):
		case <-ctx.Done():
		}
		if stuck {
			continue
		}
		for range n {
			b.endOne()
		}
	}
	b.mu.Lock()
	b.closed = true
	rest := b.flying
	b.flying = map[string]*publish.Event{}
	b.mu.Unlock()
	for _, e := range rest {
		e.Done(publish.ErrClosed)
	}
	return nil
}

// endOne ends some event in flight.
func (b *modelBus) endOne() {
	b.mu.Lock()
	var key string
	var e *publish.Event
	for key, e = range b.flying { // any
		break
	}
	if e == nil {
		b.mu.Unlock()
		return
	}
	delete(b.flying, key)
	b.bytes -= e.Size()
	if e.Alone {
		b.alone--
	}
	var err error
	d := e.Delta
	switch outcome := b.draw(12); {
	case outcome == 0:
		err = &publish.RetryError{Reason: publish.ReasonUnavailable, Err: errors.New("not now")}
	case outcome == 1:
		err = &publish.RetryError{Reason: publish.ReasonStreamFull, After: 500 * time.Millisecond, Err: errors.New("full")}
	case outcome == 2:
		err = &publish.RetryError{Reason: publish.ReasonConnection, Alone: true, Err: errors.New("cut")}
	case outcome == 3 && d.Stream == nil && !e.DeadLetter:
		err = fmt.Errorf("%w: by the schedule", publish.ErrRefused)
	case outcome == 4:
		e.Retried(publish.ReasonTimeout) // and again, by itself
	}
	if err == nil {
		id := string(e.ID)
		if e.DeadLetter {
			id += " letter"
		}
		if b.ended[id] != "" {
			b.mistake("%s ended twice", id)
		}
		b.ended[id] = "taken"
		if d.Stream == nil && !e.DeadLetter {
			b.order[key] = append(b.order[key], d.ResourceVersion)
		}
	}
	b.mu.Unlock()
	e.Done(err)
}

// TestSchedules plays random schedules of acknowledgements, failures, outages and ends of the bus against the dispatcher: each delta is done once, in the order
// of its object, the bounds hold, and no lane starves beside one that is stuck.
func TestSchedules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			playSchedule(rt)
		})
		switch f := failure.(type) {
		case nil:
		case mismatch:
			rt.Fatal(string(f))
		default:
			panic(f)
		}
	})
}

// mismatch is a panic: rapid works by panics, which have to leave the bubble by hand.
type mismatch string

func playSchedule(t *rapid.T) {
	const inFlightBytes = 64 << 10
	fatalf := func(format string, args ...any) { panic(mismatch(fmt.Sprintf(format, args...))) }
	schedule := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "schedule"), 0))
	inFlight := rapid.IntRange(1, 12).Draw(t, "in flight")
	b := &modelBus{flying: map[string]*publish.Event{}, order: map[string][]uint64{}, ended: map[string]string{}}
	b.draw = schedule.IntN
	q := queue.New[*object.Delta](queue.Options{Events: 200, Bytes: 1 << 20, InFlight: inFlight, InFlightBytes: inFlightBytes}, nil)
	q.WeighBy(func(d *object.Delta) int64 { return publish.Weigh(d, 1) })

	j := newJournal()
	want := map[string][]string{}
	var ds []*object.Delta
	for i := range rapid.IntRange(1, 40).Draw(t, "deltas") {
		name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "object")
		d := change(j, name, len(want[name])+2, rapid.SampledFrom([]int{10, 2_000, 20_000, 60_000}).Draw(t, "size"))
		if rapid.IntRange(0, 7).Draw(t, "stream") == 0 {
			d = &object.Delta{Stream: &object.StreamEvent{Kind: object.Progress, Resource: pods, Scope: "pods/shop", ResourceVersion: uint64(i + 100)}, Acker: j}
		} else {
			want[name] = append(want[name], fmt.Sprint(d.ResourceVersion))
		}
		ds = append(ds, d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	running, stopBus := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer func() {
		stopBus()
		cancel()
		all.Wait()
	}()
	all.Go(func() { _ = b.Run(running) })
	d := publish.NewDispatcher(q, value, newEncoder(encode.Structured), b, publish.Options{DeadLetters: b}, discard, nil)
	done := make(chan error, 1)
	all.Go(func() { done <- d.Run(ctx) })
	all.Go(func() {
		for _, d := range ds {
			key, lane := "stream:pods/shop", "a"
			if d.Stream == nil {
				key, lane = d.Ref.Key, d.Ref.Name()
			}
			if q.Lane(lane).Put(ctx, key, d.Size(), d) != nil {
				return
			}
		}
		q.Close()
	})
	cut := rapid.IntRange(0, 3).Draw(t, "cut") == 0
	if rapid.Bool().Draw(t, "outage") {
		pause(time.Duration(rapid.IntRange(0, 50).Draw(t, "outage begins")) * time.Millisecond)
		b.mu.Lock()
		b.stuck = true
		b.mu.Unlock()
		pause(5 * time.Second)
		synctest.Wait()
		if n := q.Stats().Inflight; n > inFlight {
			fatalf("%d events in flight, the bound is %d", n, inFlight)
		}
		b.mu.Lock()
		b.stuck = false
		b.mu.Unlock()
	}
	if cut { // the grace period ends, or the bus
		pause(time.Duration(rapid.IntRange(0, 2000).Draw(t, "cut after")) * time.Millisecond)
		if rapid.Bool().Draw(t, "the bus ends") {
			stopBus()
		} else {
			cancel()
		}
	}
	var err error
	select {
	case err = <-done:
	case <-time.After(24 * time.Hour):
		fatalf("not drained after a day: %v", d.Stuck())
	}
	stopBus()
	cancel()
	all.Wait()
	if len(b.mistakes) > 0 {
		fatalf("%s", strings.Join(b.mistakes, "\n"))
	}
	if !cut && err != nil {
		fatalf("ended with %v", err)
	}
	if b.mostOf > inFlight {
		fatalf("%d events were in flight, the bound is %d", b.mostOf, inFlight)
	}
	checkSchedule(fatalf, b, j, want, !cut)
}

// pause lets the time of the bubble go by.
func pause(d time.Duration) { <-time.After(d) }

// checkSchedule compares what is acknowledged with what the bus has taken.
func checkSchedule(fatalf func(string, ...any), b *modelBus, j *journal, want map[string][]string, all bool) {
	got := map[string][]string{}
	for _, entry := range j.entries {
		name, version, ok := strings.Cut(strings.TrimPrefix(entry, "ack "), "/")
		if !ok {
			continue // a stream event
		}
		got[name] = append(got[name], version)
		id := fmt.Sprintf("pods/uid-%s/%s", name, version)
		if b.ended[id] == "" && b.ended[id+" letter"] == "" {
			fatalf("%s is acknowledged, and the bus has neither it nor its letter", id)
		}
		if b.ended[id] != "" && b.ended[id+" letter"] != "" {
			fatalf("%s is on the bus, and a dead letter", id)
		}
	}
	for name, versions := range want {
		if all && len(got[name]) != len(versions) {
			fatalf("%s: %d of %d deltas are acknowledged", name, len(got[name]), len(versions))
		}
		for i, v := range got[name] {
			if v != versions[i] {
				fatalf("%s: acknowledged %v, want %v", name, got[name], versions)
			}
		}
	}
	for key, versions := range b.order {
		for i := 1; i < len(versions); i++ {
			if versions[i] <= versions[i-1] {
				fatalf("%s: the bus has %v", key, versions)
			}
		}
	}
}
