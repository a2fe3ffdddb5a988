package queue_test

import (
	"fmt"
	"slices"

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
