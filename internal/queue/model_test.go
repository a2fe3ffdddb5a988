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

// model implements the documented behavior of the queue, using only lists that are searched from
// the start each time.
type model struct {
	maxEvents, keyShare int
	maxBytes            int
	maxInFlight         int // 0: not bounded
	maxFlying           int // bytes in flight; 0: not bounded
	closed              bool

	first *modelItem // waits for room in flight while it is the first in line

	held  []*modelItem // in the order taken; gone with Done
	puts  []*modelPut  // waiting, in order of arrival
	gets  int          // waiting
	rooms []*modelRoom // waiting
	asked []*modelLane // those with a channel that is closed when there is room
	turn  []*modelLane // lanes with an item to hand out, next first

	outcomes []string // results of calls since the last check
}

type modelLane struct {
	name    string
	real    *queue.Lane[int]
	refused *modelItem // the item that TryPut refused, until an item of its key is admitted
}

type modelItem struct {
	id       int
	lane     *modelLane
	key      string
	bytes    int
	caught   bool       // catch-up
	inFlight bool       // suspended ones too
	weight   int        // in flight, in bytes
	overtook *modelItem // model.first, if this item was handed out before it
}

type modelPut struct {
	call int
	*modelItem
}

type modelRoom struct {
	call int
	lane *modelLane
}

// all returns the number and bytes of held items, optionally of one lane or of catch-up only.
func (m *model) all(of *modelLane, caught bool) (events, bytes int) {
	for _, it := range m.held {
		if (of == nil || it.lane == of) && (it.caught || !caught) {
			events++
			bytes += it.bytes
		}
	}
	return events, bytes
}

func (m *model) bytes() int {
	_, bytes := m.all(nil, false)
	return bytes
}

func (m *model) flying(of *modelLane) (n int) {
	for _, it := range m.held {
		if it.inFlight && (of == nil || it.lane == of) {
			n++
		}
	}
	return n
}

func (m *model) keyFull(key string) bool {
	n := 0
	for _, it := range m.held {
		if it.key == key {
			n++
		}
	}
	return n >= m.keyShare
}

func (m *model) fits(bytes int) bool {
	return len(m.held) == 0 || len(m.held) < m.maxEvents && m.bytes()+bytes <= m.maxBytes
}

// leaves reports whether the lane, with one more item, would hold at most n times the room then
// left free: of the whole queue, or of the half for catch-up.
func (m *model) leaves(l *modelLane, bytes, n int, caught bool) bool {
	maxEvents, maxBytes := m.maxEvents, m.maxBytes
	if caught {
		maxEvents, maxBytes = maxEvents/2, maxBytes/2
	}
	laneEvents, laneBytes := m.all(l, caught)
	allEvents, allBytes := m.all(nil, caught)
	freeEvents, freeBytes := maxEvents-allEvents-1, maxBytes-allBytes-bytes
	return laneEvents == 0 || freeBytes >= 0 && laneEvents+1 <= n*freeEvents && laneBytes+bytes <= n*freeBytes
}

func (m *model) roomy(l *modelLane, n int) bool {
	it := l.refused
	if it == nil {
		it = &modelItem{}
	} else if !m.fits(it.bytes) || m.keyFull(it.key) {
		return false
	}
	// No Put waits for room, and no Put of this lane waits until the lane holds less.
	waits := slices.ContainsFunc(m.puts, func(p *modelPut) bool { return p.lane == l && !m.keyFull(p.key) })
	return m.firstPut() == nil && !waits && m.leaves(l, it.bytes, n, false) && m.leaves(l, it.bytes, n, true)
}

// weight returns the bytes in flight, optionally of one lane only.
func (m *model) weight(of *modelLane) (bytes int) {
	for _, it := range m.held {
		if it.inFlight && (of == nil || it.lane == of) {
			bytes += it.weight
		}
	}
	return bytes
}

// weighty returns the number of items in flight that have bytes.
func (m *model) weighty() (n int) {
	for _, it := range m.held {
		if it.inFlight && it.weight > 0 {
			n++
		}
	}
	return n
}

// overtakers returns the bytes in flight of items that overtook the first in line.
func (m *model) overtakers() (bytes int) {
	for _, it := range m.held {
		if it.inFlight && it.overtook != nil && it.overtook == m.first {
			bytes += it.weight
		}
	}
	return bytes
}

// next returns the item to hand out next, or nil, and whether it overtakes m.first.
func (m *model) next() (next *modelItem, overtakes bool) {
	var first *modelItem
	for _, l := range m.turn {
		it, mine := m.free(l), m.flying(l)
		if idle := m.maxInFlight - m.flying(nil) - 1; m.maxInFlight > 0 && (idle < 0 || mine > 0 && mine+1 > 2*idle) {
			continue // it has too many items in flight
		}
		if m.maxFlying == 0 {
			return it, false
		}
		left := m.maxFlying - m.weight(nil) - it.weight
		switch {
		case m.weight(l) > 0 && (left < 0 || m.weight(l)+it.weight > 2*left): // it has too many bytes
		case first != nil:
			if left >= 0 && m.overtakers()+it.weight <= m.maxFlying-first.weight {
				return it, true
			}
		case left >= 0 || m.weight(nil) == 0:
			return it, false
		default:
			first = it
			m.first = it
		}
	}
	return nil, false
}

// free returns the item that the lane would hand out, or nil.
func (m *model) free(l *modelLane) *modelItem {
	seen := map[string]bool{}
	for _, it := range m.held {
		if it.lane == l && !seen[it.key] && !it.inFlight {
			return it
		}
		seen[it.key] = true
	}
	return nil
}

// lineUp appends each lane that has become able to hand out an item to the line.
func (m *model) lineUp() {
	for _, it := range m.held {
		if !slices.Contains(m.turn, it.lane) && m.free(it.lane) != nil {
			m.turn = append(m.turn, it.lane)
		}
	}
}

func (m *model) take(it *modelItem) {
	m.held = append(m.held, it)
	if r := it.lane.refused; r != nil && r.key == it.key {
		it.lane.refused = nil
	}
	m.lineUp()
}

func (m *model) item(id int) *modelItem {
	return m.held[slices.IndexFunc(m.held, func(it *modelItem) bool { return it.id == id })]
}

func (m *model) handOut() *modelItem {
	it, overtakes := m.next()
	it.inFlight = true
	if overtakes {
		it.overtook = m.first
	}
	m.turn = slices.DeleteFunc(m.turn, func(other *modelLane) bool { return other == it.lane })
	m.lineUp()
	return it
}

// firstPut returns the waiting Put that gets the next free room, or nil.
func (m *model) firstPut() *modelPut {
	passed := map[*modelLane]bool{} // lanes with a Put that is too much: their later Puts wait too
	for _, p := range m.puts {
		switch {
		case m.keyFull(p.key) || passed[p.lane]:
		case m.leaves(p.lane, p.bytes, 2, false):
			return p
		default:
			passed[p.lane] = true
		}
	}
	return nil
}

func (m *model) wakeReady() {
	for p := m.firstPut(); p != nil && m.fits(p.bytes); p = m.firstPut() {
		m.puts = slices.DeleteFunc(m.puts, func(other *modelPut) bool { return other == p })
		m.take(p.modelItem)
		m.outcome("call %d: put %d: <nil>", p.call, p.id)
	}
	for m.gets > 0 {
		if next, _ := m.next(); next == nil {
			break
		}
		m.gets--
		m.outcome("got %d", m.handOut().id)
	}
	if m.closed && len(m.held) == 0 {
		for ; m.gets > 0; m.gets-- {
			m.outcome("get: %v", queue.ErrClosed)
		}
	}
	m.asked = slices.DeleteFunc(m.asked, func(l *modelLane) bool {
		ok := m.roomy(l, 1)
		if ok {
			m.rooms = slices.DeleteFunc(m.rooms, func(r *modelRoom) bool {
				if r.lane == l {
					m.outcome("call %d: roomy: <nil>", r.call)
				}
				return r.lane == l
			})
		}
		return ok
	})
}

// refuse ends the waiting calls with ErrClosed.
func (m *model) refuse() {
	for _, p := range m.puts {
		m.outcome("call %d: put %d: %v", p.call, p.id, queue.ErrClosed)
	}
	m.puts, m.asked = nil, nil
}

func (m *model) outcome(format string, args ...any) {
	m.outcomes = append(m.outcomes, fmt.Sprintf(format, args...))
}

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
