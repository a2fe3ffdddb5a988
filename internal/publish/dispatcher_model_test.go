package publish_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
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

// modelBus ends events as its schedule says, later and in any order, and checks the events that the
// dispatcher hands over.
type modelBus struct {
	mu       sync.Mutex
	draw     func(n int) int // chooses one of n outcomes, by the schedule
	flying   map[string]*publish.Event
	alone    int
	closed   bool
	away     bool              // it accepts nothing
	stuck    func(string) bool // the keys whose events it never accepts; nil: none
	silent   bool              // it does not end these either, unless they are alone; otherwise it hands them back
	bytes    int64             // in flight, as the dispatcher has to count them
	most     int64
	mostOf   int   // events in flight at a time
	largest  int64 // event, as counted in bytes
	mistakes []string
	// order has, for each key, the versions that the bus has accepted, and for each event its
	// result.
	order map[string][]uint64
	ended map[string]string
}

func (b *modelBus) mistake(format string, args ...any) {
	b.mistakes = append(b.mistakes, fmt.Sprintf(format, args...))
}

// keyOfEvent returns the key of the event's delta in the queue.
func keyOfEvent(ev *publish.Event) string {
	if d := ev.Delta; d.Stream == nil {
		return d.Ref.Key
	}
	return "stream:" + ev.Delta.Stream.Scope
}

// tolerated is the difference between an event's memory and its estimate that the dispatcher may
// ignore, besides a quarter of the estimate.
const tolerated = 32 << 10

// counted returns the memory of the event, or its estimate if they differ little.
func counted(e *publish.Event) int64 {
	estimate, actual := publish.Weigh(e.Delta, 1), int64(e.Footprint())
	if actual <= estimate+estimate/4+tolerated {
		return min(actual, estimate)
	}
	return actual
}

// heavyEncoder encodes every other version as an event with much more memory than its delta
// suggests, like one with a large patch.
type heavyEncoder struct{ *encode.Encoder }

func (h heavyEncoder) Encode(ev *encode.Event, d *object.Delta) error {
	err := h.Encoder.Encode(ev, d)
	if d.ResourceVersion%2 == 0 {
		ev.Body = slices.Grow(ev.Body, 150_000)
	}
	return err
}

func (b *modelBus) Publish(e *publish.Event) {
	b.mu.Lock()
	key := keyOfEvent(e)
	if b.flying[key] != nil {
		b.mistake("two events of %s are in flight", key)
	}
	if e.Alone {
		b.alone++
		if b.alone > 1 {
			b.mistake("%d events that are sent alone are in flight", b.alone)
		}
	}
	if b.closed {
		b.mu.Unlock()
		e.Done(publish.ErrClosed)
		return
	}
	b.flying[key] = e
	n := counted(e)
	b.bytes += n
	b.most = max(b.most, b.bytes)
	b.mostOf = max(b.mostOf, len(b.flying))
	b.largest = max(b.largest, n)
	b.mu.Unlock()
}

func (*modelBus) Ready() error { return nil }

// Run ends events until ctx ends, and then all remaining events in flight.
func (b *modelBus) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		b.mu.Lock()
		pause := time.Duration(b.draw(20)) * time.Millisecond
		n := b.draw(8)
		cut := b.draw(10) == 0
		away := b.away
		b.mu.Unlock()
		select {
		case <-time.After(pause + time.Millisecond):
		case <-ctx.Done():
		}
		switch {
		case away:
		case cut:
			b.cut()
		default:
			for range n {
				b.endOne()
			}
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

// remove removes an event from those in flight.
func (b *modelBus) remove(key string, e *publish.Event) {
	delete(b.flying, key)
	b.bytes -= counted(e)
	if e.Alone {
		b.alone--
	}
}

// cut ends a connection. The bus hands back some of its events together, and resends others by
// itself. Their outcome is open.
func (b *modelBus) cut() {
	b.mu.Lock()
	back := map[*publish.Event]error{}
	for key, e := range b.flying { // in any order
		switch outcome := b.draw(4); outcome {
		case 0: // on another connection
		case 1:
			e.Retried(publish.ReasonConnection)
		default:
			b.remove(key, e)
			back[e] = &publish.RetryError{
				Reason: publish.ReasonConnection,
				Alone:  outcome == 2 || e.Alone,
				Err:    errors.New("cut"),
			}
		}
	}
	b.mu.Unlock()
	for e, err := range back {
		e.Done(err)
	}
}

// endOne ends some event in flight.
func (b *modelBus) endOne() {
	b.mu.Lock()
	var key string
	var e *publish.Event
	for k, f := range b.flying { // any
		if b.stuck == nil || !b.stuck(k) || !b.silent || f.Alone {
			key, e = k, f
			break
		}
	}
	if e == nil {
		b.mu.Unlock()
		return
	}
	b.remove(key, e)
	err := b.outcome(key, e)
	if err == nil {
		id := string(e.ID)
		if e.DeadLetter {
			id += " letter"
		}
		if b.ended[id] != "" {
			b.mistake("%s ended twice", id)
		}
		b.ended[id] = "taken"
		if e.Delta.Stream == nil && !e.DeadLetter {
			b.order[key] = append(b.order[key], e.Delta.ResourceVersion)
		}
	}
	b.mu.Unlock()
	e.Done(err)
}

// outcome returns the scheduled outcome of an event.
func (b *modelBus) outcome(key string, e *publish.Event) error {
	outcome := b.draw(12)
	switch {
	case outcome == 2:
		return &publish.RetryError{Reason: publish.ReasonConnection, Alone: true, Err: errors.New("cut")}
	case b.stuck != nil && b.stuck(key), outcome == 0:
		return &publish.RetryError{Reason: publish.ReasonUnavailable, Err: errors.New("not now")}
	case outcome == 1:
		return &publish.RetryError{
			Reason: publish.ReasonStreamFull,
			After:  500 * time.Millisecond,
			Err:    errors.New("full"),
		}
	case outcome == 3 && e.Delta.Stream == nil && !e.DeadLetter:
		return fmt.Errorf("%w: by the schedule", publish.ErrRefused)
	case outcome == 4:
		e.Retried(publish.ReasonTimeout) // and again, by itself
	}
	return nil
}

// TestSchedules plays random schedules of acknowledgements, failures, cut connections, outages and
// ends of the bus against the dispatcher. Each delta is done once, in the order of its object. The
// events and the bytes in flight stay within their bounds. The bytes may exceed theirs by one event
// that is alone, and by one for each encoder, because an event's size is known only after it is
// encoded. No lane starves while the bus takes no event of one object or of one lane.
func TestSchedules(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(encoders)) // the same bound on all machines
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

const (
	encoders = 2
	patience = 6 * time.Hour // attempts of an event that is sent alone are up to five minutes apart
)

// mismatch is a panic: rapid works by panics, which must be carried out of the bubble by hand.
type mismatch string

func fatalf(format string, args ...any) { panic(mismatch(fmt.Sprintf(format, args...))) }

// laneOf returns the lane of a delta: objects a1, a2 and a3 share one, and so on.
func laneOf(d *object.Delta) string {
	if d.Stream != nil {
		return "stream"
	}
	return d.Ref.Name()[:1]
}

// drawDeltas returns deltas by lane, and the versions of each object.
func drawDeltas(t *rapid.T, j *journal) (lanes map[string][]*object.Delta, want map[string][]string) {
	lanes, want = map[string][]*object.Delta{}, map[string][]string{}
	for i := range rapid.IntRange(1, 40).Draw(t, "deltas") {
		name := rapid.SampledFrom([]string{"a1", "a2", "a3", "b1", "b2", "c1", "c2", "c3", "d1", "d2", "d3"}).
			Draw(t, "object")
		d := change(j, name, len(want[name])+2, rapid.SampledFrom([]int{10, 2_000, 20_000, 60_000}).Draw(t, "size"))
		if rapid.IntRange(0, 7).Draw(t, "stream") == 0 {
			d = &object.Delta{Observed: int64(i + 100), Stream: &object.StreamEvent{
				Kind:            object.ScopeStarted,
				Resource:        pods,
				Scope:           "pods/shop",
				ResourceVersion: uint64(i + 100),
			}, Acker: j}
		} else {
			want[name] = append(want[name], fmt.Sprint(d.ResourceVersion))
		}
		lanes[laneOf(d)] = append(lanes[laneOf(d)], d)
	}
	return lanes, want
}

func playSchedule(t *rapid.T) {
	schedule := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "schedule"), 0))
	inFlight, inFlightBytes := rapid.IntRange(1, 12).Draw(t, "in flight"), int64(64<<10)
	b := &modelBus{
		flying: map[string]*publish.Event{},
		order:  map[string][]uint64{},
		ended:  map[string]string{},
		draw:   schedule.IntN,
	}
	j := newJournal()
	lanes, want := drawDeltas(t, j)
	if stuck := rapid.SampledFrom([]string{"", "", "a", "a1"}).Draw(t, "stuck"); stuck != "" {
		b.stuck = func(key string) bool { return strings.HasPrefix(key[strings.LastIndex(key, "/")+1:], stuck) }
		b.silent = rapid.Bool().Draw(t, "silent")
		inFlight, inFlightBytes = inFlight+1, 4<<20 // one slot is left for other lanes
		if len(stuck) > 1 {
			inFlight++ // and one for other objects of this lane
		}
	}
	q := queue.New[*object.Delta](
		queue.Options{Events: 200, Bytes: 16 << 20, InFlight: inFlight, InFlightBytes: inFlightBytes}, nil)
	q.WeighBy(func(d *object.Delta) int64 { return publish.Weigh(d, 1) })

	ctx, cancel := context.WithCancel(context.Background())
	running, stopBus := context.WithCancel(context.Background())
	var all, puts sync.WaitGroup
	defer func() {
		stopBus()
		cancel()
		all.Wait()
	}()
	all.Go(func() { _ = b.Run(running) })
	d := publish.NewDispatcher(q, value, heavyEncoder{newEncoder(encode.Structured)}, b,
		publish.Options{DeadLetters: b}, discard, nil)
	done := make(chan error, 1)
	all.Go(func() { done <- d.Run(ctx) })
	for lane, ds := range lanes {
		puts.Go(func() {
			for _, d := range ds {
				key := "stream:pods/shop"
				if d.Stream == nil {
					key = d.Ref.Key
				}
				if q.Lane(lane).Put(ctx, key, d.Size(), d) != nil {
					return
				}
			}
		})
	}
	all.Go(func() {
		puts.Wait()
		q.Close()
	})
	cut := rapid.IntRange(0, 3).Draw(t, "cut") == 0
	if rapid.Bool().Draw(t, "outage") {
		pause(time.Duration(rapid.IntRange(0, 50).Draw(t, "outage begins")) * time.Millisecond)
		b.set(func() { b.away = true })
		pause(5 * time.Second)
		synctest.Wait()
		if n := q.Stats().Inflight; n > inFlight {
			fatalf("%d events in flight, the bound is %d", n, inFlight)
		}
		b.set(func() { b.away = false })
	}
	switch {
	case cut: // the grace period ends, or the bus
		pause(time.Duration(rapid.IntRange(0, 2000).Draw(t, "cut after")) * time.Millisecond)
		if rapid.Bool().Draw(t, "the bus ends") {
			stopBus()
		} else {
			cancel()
		}
	case b.stuck != nil:
		awaitOthers(b, j, lanes, d.Stuck)
		b.set(func() { b.stuck = nil })
	}
	var err error
	select {
	case err = <-done:
	case <-time.After(patience):
		fatalf("not drained after six hours: %v", d.Stuck())
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
	if bound := inFlightBytes + (encoders+1)*b.largest; b.most > bound {
		fatalf("%d bytes were in flight, the largest event had %d, and the bound is %d", b.most, b.largest, bound)
	}
	checkSchedule(b, j, want, !cut)
}

func (b *modelBus) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// awaitOthers waits until the bus has all events except those that it never accepts.
func awaitOthers(b *modelBus, j *journal, lanes map[string][]*object.Delta, stuck func() []publish.Stuck) {
	others := 0
	for _, ds := range lanes {
		for _, d := range ds {
			if d.Stream != nil || !b.stuck(d.Ref.Key) {
				others++
			}
		}
	}
	for start := time.Now(); ; pause(time.Second) {
		acked := 0
		j.mu.Lock()
		for _, entry := range j.entries {
			if name, _, object := strings.Cut(strings.TrimPrefix(entry, "ack "), "/"); !object || !b.stuck(name) {
				acked++
			}
		}
		j.mu.Unlock()
		switch {
		case acked == others:
			return
		case time.Since(start) > patience:
			fatalf("a lane starves: %d of %d other events are acknowledged after six hours: %v", acked, others, stuck())
		}
	}
}

// pause lets the bubble's time pass.
func pause(d time.Duration) { <-time.After(d) }

// checkSchedule compares the acknowledged versions with those that the bus has accepted.
func checkSchedule(b *modelBus, j *journal, want map[string][]string, all bool) {
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
