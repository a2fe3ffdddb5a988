package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/queue"
)

// call is a call on the real queue that has not returned yet.
type call struct {
	id     int
	kind   string
	cancel context.CancelCauseFunc
}

// TestModel plays random calls on a queue and on the model, one at a time. After each call, it
// waits until the queue is idle, and compares the results of all calls.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// rapid works by panics, which must be carried out of the bubble by hand: inside, they
		// would end the process. A bubble around Check instead would stop the clock that ends
		// rapid's search for a smaller case.
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			playModel(rt)
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

// mismatch is a panic: the queue and the model disagree.
type mismatch string

func fatalf(format string, args ...any) { panic(mismatch(fmt.Sprintf(format, args...))) }

var errGaveUp = errors.New("gave up")

func playModel(t *rapid.T) {
	m := &model{
		maxEvents:   rapid.IntRange(1, 12).Draw(t, "max events"),
		maxBytes:    rapid.IntRange(1, 100).Draw(t, "max bytes"),
		keyShare:    rapid.IntRange(1, 4).Draw(t, "key share"),
		maxInFlight: rapid.IntRange(0, 6).Draw(t, "max in flight"),
		maxFlying:   rapid.IntRange(0, 40).Draw(t, "max flying"),
	}
	q := queue.New[int](queue.Options{
		Events: m.maxEvents, Bytes: int64(m.maxBytes), InFlight: m.maxInFlight, InFlightBytes: int64(m.maxFlying),
	}, nil)
	q.SetKeyShare(m.keyShare)
	weights := map[int]int{} // by id, including items that have not been put
	q.WeighBy(func(id int) int64 { return int64(weights[id]) })
	resized := false // an item in flight has grown: the bound may be exceeded

	lanes := map[string]*modelLane{}
	returned := make(chan string, 1000)
	got := make(chan *queue.Item[int], 1000)
	inFlight, suspended := map[int]*queue.Item[int]{}, map[int]bool{}
	var open []*call
	finished := make(chan int, 1000)
	ids := 0

	defer func() {
		for _, c := range open {
			c.cancel(errGaveUp)
		}
		synctest.Wait()
	}()

	begin := func(kind string, f func(context.Context, int)) int {
		ids++
		ctx, cancel := context.WithCancelCause(context.Background())
		c := &call{id: ids, kind: kind, cancel: cancel}
		open = append(open, c)
		go func() {
			f(ctx, c.id)
			finished <- c.id
			cancel(nil)
		}()
		return c.id
	}
	drawLane := func() *modelLane {
		name := rapid.SampledFrom([]string{"pods", "events", "leases"}).Draw(t, "lane")
		l := lanes[name]
		if l == nil {
			l = &modelLane{name: name, real: q.Lane(name)}
			lanes[name] = l
		}
		if q.Lane(name) != l.real {
			fatalf("lane %s: another one than before", name)
		}
		return l
	}
	drawItem := func() *modelItem {
		it := &modelItem{lane: drawLane(), id: ids + 1}
		it.key = rapid.SampledFrom([]string{"shared", it.lane.name + "/a", it.lane.name + "/b", it.lane.name + "/c"}).
			Draw(t, "key")
		it.bytes = rapid.OneOf(rapid.IntRange(0, max(m.maxBytes/8, 1)), rapid.IntRange(0, m.maxBytes+m.maxBytes/4)).
			Draw(t, "bytes")
		it.weight = rapid.OneOf(rapid.IntRange(1, max(m.maxFlying/4, 1)),
			rapid.IntRange(1, m.maxFlying+m.maxFlying/4+1)).Draw(t, "weight")
		weights[it.id] = it.weight
		return it
	}

	giveUp := func(c *call) {
		c.cancel(errGaveUp)
		switch c.kind {
		case "put":
			i := slices.IndexFunc(m.puts, func(p *modelPut) bool { return p.call == c.id })
			m.outcome("call %d: put %d: %v", c.id, m.puts[i].id, errGaveUp)
			m.puts = slices.Delete(m.puts, i, i+1)
		case "roomy":
			m.rooms = slices.DeleteFunc(m.rooms, func(r *modelRoom) bool { return r.call == c.id })
			m.outcome("call %d: roomy: %v", c.id, errGaveUp)
		case "get":
			m.gets--
			m.outcome("get: %v", errGaveUp)
		}
	}
	done := func(id int) {
		q.Done(inFlight[id])
		delete(inFlight, id)
		delete(suspended, id)
		m.held = slices.DeleteFunc(m.held, func(it *modelItem) bool { return it.id == id })
		m.lineUp()
	}
	get := func() {
		begin("get", func(ctx context.Context, _ int) {
			it, err := q.Get(ctx)
			if err != nil {
				returned <- fmt.Sprintf("get: %v", err)
				return
			}
			returned <- fmt.Sprintf("got %d", it.Value)
			got <- it
		})
		m.gets++
	}
	// rest waits until the queue and the model are idle, and compares them.
	rest := func() {
		m.wakeReady()
		synctest.Wait()

		var outcomes []string
		for len(returned) > 0 {
			outcomes = append(outcomes, <-returned)
		}
		slices.Sort(outcomes)
		slices.Sort(m.outcomes)
		if diff := cmp.Diff(m.outcomes, outcomes); diff != "" {
			fatalf("outcomes (-model +queue):\n%s", diff)
		}
		m.outcomes = nil
		for len(finished) > 0 {
			id := <-finished
			open = slices.DeleteFunc(open, func(c *call) bool { return c.id == id })
		}
		for len(got) > 0 {
			it := <-got
			inFlight[it.Value] = it
		}

		events, flying, bytes := q.State()
		if events != len(m.held) || flying != len(inFlight) || bytes != int64(m.bytes()) {
			fatalf("holds %d events (%d in flight), %d bytes; want %d (%d), %d",
				events, flying, bytes, len(m.held), len(inFlight), m.bytes())
		}
		if events > m.maxEvents || bytes > int64(m.maxBytes) && events > 1 {
			fatalf("out of bounds: %d events, %d bytes", events, bytes)
		}
		keys := map[string]bool{}
		for _, it := range inFlight {
			if keys[it.Key()] {
				fatalf("two items of key %s in flight", it.Key())
			}
			keys[it.Key()] = true
		}
		if got := q.Stats().InflightBytes; got != int64(m.weight(nil)) {
			fatalf("%d bytes in flight, want %d", got, m.weight(nil))
		}
		resized = resized && flying > 0
		if n := m.weighty(); m.maxFlying > 0 && !resized && m.weight(nil) > m.maxFlying && n > 1 {
			fatalf("out of bounds: %d bytes of %d items in flight", m.weight(nil), n)
		}
		puts, gets, rooms, _ := q.Waiting()
		if puts != len(m.puts) || gets != m.gets || rooms != len(m.asked) {
			fatalf("waiting: %d Put, %d Get, %d channels of Room; want %d, %d, %d", puts, gets, rooms, len(m.puts),
				m.gets, len(m.asked))
		}
	}

	actions := []func(){
		func() { // Put
			it := drawItem()
			id := begin("put", func(ctx context.Context, id int) {
				err := it.lane.real.Put(ctx, it.key, it.bytes, it.id)
				returned <- fmt.Sprintf("call %d: put %d: %v", id, it.id, err)
			})
			if m.closed {
				m.outcome("call %d: put %d: %v", id, it.id, queue.ErrClosed)
				return
			}
			m.puts = append(m.puts, &modelPut{id, it})
		},
		func() { // TryPut
			it := drawItem()
			ids++
			want := false
			if !m.closed {
				it.caught, it.lane.refused = true, it
				want = m.roomy(it.lane, 2)
				if want {
					m.take(it)
				}
			}
			if took := it.lane.real.TryPut(it.key, it.bytes, it.id); took != want {
				fatalf("TryPut of %d: %v, want %v", it.id, took, want)
			}
		},
		func() { // Room
			l := drawLane()
			room := l.real.Room()
			id := begin("roomy", func(ctx context.Context, id int) {
				returned <- fmt.Sprintf("call %d: roomy: %v", id, roomy(ctx, room))
			})
			if !m.closed && m.roomy(l, 2) {
				m.outcome("call %d: roomy: <nil>", id)
				return
			}
			m.rooms = append(m.rooms, &modelRoom{id, l})
			if !m.closed && !slices.Contains(m.asked, l) {
				m.asked = append(m.asked, l)
			}
		},
		get,
		func() { // Done
			if len(inFlight) > 0 {
				done(rapid.SampledFrom(slices.Sorted(maps.Keys(inFlight))).Draw(t, "done"))
			}
		},
		func() { // Suspend or Resume
			if len(inFlight) == 0 {
				return
			}
			id := rapid.SampledFrom(slices.Sorted(maps.Keys(inFlight))).Draw(t, "suspended or resumed")
			item, real := m.item(id), inFlight[id]
			if suspended[id] {
				item.inFlight, item.weight = false, weights[id]
				delete(suspended, id)
				delete(inFlight, id)
				m.lineUp()
				q.Resume(real)
				return
			}
			item.weight, item.overtook = 0, nil
			suspended[id] = true
			q.Suspend(real)
		},
		func() { // Resize
			if len(inFlight) > 0 {
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(inFlight))).Draw(t, "resized")
				bytes := rapid.IntRange(0, m.maxFlying+1).Draw(t, "resized to")
				q.Resize(inFlight[id], int64(bytes))
				it := m.item(id)
				resized = resized || bytes > it.weight
				it.weight = bytes
			}
		},
		func() { // a caller gives up
			if len(open) > 0 {
				giveUp(rapid.SampledFrom(open).Draw(t, "gives up"))
			}
		},
		func() { // Release
			if rapid.IntRange(0, 4).Draw(t, "release") != 0 {
				return
			}
			l := drawLane()
			q.Release(l.name)
			delete(lanes, l.name)
		},
		func() { // Close
			if rapid.IntRange(0, 9).Draw(t, "close") != 0 {
				return
			}
			q.Close()
			m.closed = true
			m.refuse()
		},
	}
	choices := []int{0, 0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 6, 7, 8, 9}

	for range rapid.IntRange(1, 150).Draw(t, "steps") {
		actions[rapid.SampledFrom(choices).Draw(t, "action")]()
		rest()
	}

	// In any case, the callers give up, and the remaining items leave in the order of the model.
	for len(open) > 0 {
		giveUp(open[len(open)-1])
		rest()
	}
	for len(m.held) > 0 {
		if next, _ := m.next(); next != nil {
			get()
		} else {
			done(slices.Min(slices.Collect(maps.Keys(inFlight))))
		}
		rest()
	}
	if puts, gets, rooms, keys := q.Waiting(); puts+gets+rooms+keys != 0 {
		fatalf("left behind: %d Put, %d Get, %d channels of Room, %d keys", puts, gets, rooms, keys)
	}
}
