package store

import (
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Filters withhold versions of objects, and deletions. While they do, what a consumer has of the
// scope differs from what exists. Nothing on the bus says so before the next event of the object,
// which may never come. So the progress says in which spans that was the case.
//
// A span is open while there is an object whose last version the consumers lack, or an object that
// they still have although it is gone. A completed snapshot of the whole scope corrects the latter,
// if the object was gone before the snapshot.

// hiddenState is what consumers lack of an existing object.
type hiddenState uint8

const (
	shown  hiddenState = iota // nothing
	older                     // they have an earlier version
	swept                     // its read was withheld: they have an earlier version until the end of the snapshot
	absent                    // they have no version
)

// hiding counts what consumers lack of the scope because of filters.
type hiding struct {
	objects int // that exist, and are not shown
	gone    int // that consumers may have although they are gone
	spans   []notedSpan
	keep    time.Time // those that ended before are no longer reported
}

type notedSpan struct {
	object.HiddenSpan
	noted time.Time // when it ended; zero: it has not
}

// hiddenNearby is the time between two spans that are reported as one.
const hiddenNearby = time.Minute

func (h *hiding) any() bool { return h.objects > 0 || h.gone > 0 }

// afterDelta returns what consumers lack of an object after a delta, which was sent or withheld,
// and counts an object whose end was withheld.
func (h *hiding) afterDelta(d *object.Delta, sent bool, before hiddenState) hiddenState {
	switch {
	case d.Op == object.Deleted || d.Op == object.Left:
		if !sent && before != absent {
			h.gone++
		}
		return shown // of an object that may follow
	case sent:
		return shown
	case before == absent:
		return absent
	case d.Op == object.Read:
		return swept
	case before == shown && (d.Op == object.Created || d.Op == object.Entered):
		return absent
	case before == shown:
		return older
	}
	return before
}

// noteOutcomeLocked notes that a delta of a key was sent or withheld. before is what consumers lacked
// of the object, the result what they lack now.
func (s *Store) noteOutcomeLocked(key string, d *object.Delta, sent bool, before hiddenState) hiddenState {
	if sent && !s.hidden.any() {
		return shown
	}
	next := s.hidden.afterDelta(d, sent, before)
	s.noteHiddenLocked(key, next, object.Point{ResourceVersion: d.ResourceVersion, Time: time.Unix(0, d.Observed)})
	return next
}

// noteHiddenLocked notes what consumers lack of the object of a key after a delta.
func (s *Store) noteHiddenLocked(key string, next hiddenState, at object.Point) {
	e, exists := s.known.objects[key]
	if exists && e.hidden != next {
		s.hidden.objects += isHidden(next) - isHidden(e.hidden)
		e.hidden = next
		s.known.objects[key] = e
	}
	s.hidden.update(at, s.o.Now())
}

func isHidden(h hiddenState) int {
	if h == shown {
		return 0
	}
	return 1
}

// update opens or ends the span after a change of the counts.
func (h *hiding) update(at object.Point, now time.Time) {
	n := len(h.spans)
	isOpen := n > 0 && h.spans[n-1].noted.IsZero()
	if isOpen == h.any() {
		return
	}
	if isOpen {
		last := &h.spans[n-1]
		last.Until, last.noted = at, now
		return
	}
	h.spans = slices.DeleteFunc(h.spans, func(s notedSpan) bool { return s.noted.Before(h.keep) })
	n = len(h.spans)
	if n > 0 && now.Sub(h.spans[n-1].noted) <= hiddenNearby {
		h.spans[n-1].Until, h.spans[n-1].noted = object.Point{}, time.Time{}
		return
	}
	h.spans = append(h.spans, notedSpan{HiddenSpan: object.HiddenSpan{From: at}})
}

// report returns the open span, and those that ended at since or later.
func (h *hiding) report(since time.Time) (all []object.HiddenSpan) {
	h.keep = since
	for _, s := range h.spans {
		if s.noted.IsZero() || !s.noted.Before(since) {
			all = append(all, s.HiddenSpan)
		}
	}
	return all
}

// covers reports whether a position is inside a span.
func (h *hiding) covers(rv uint64) bool {
	return slices.ContainsFunc(h.spans, func(s notedSpan) bool {
		return s.From.ResourceVersion <= rv && (s.noted.IsZero() || rv < s.Until.ResourceVersion)
	})
}

// inherit takes over that a former run has withheld something, up to a point.
func (h *hiding) inherit(from object.Point, now time.Time) {
	h.gone++
	h.update(from, now)
}

// forget takes over that the last-known objects are dropped: a snapshot follows.
func (h *hiding) forget() {
	h.gone += h.objects
	h.objects = 0
}

// completeHiddenLocked notes that consumers have a snapshot completely. They have swept what it did
// not read.
func (s *Store) completeHiddenLocked(snap *snapshot) {
	if snap.namespace != "" || !s.hidden.any() {
		return
	}
	s.hidden.gone -= min(snap.gone, s.hidden.gone)
	if s.hidden.objects > 0 {
		for key, e := range s.known.objects {
			if e.hidden == swept {
				e.hidden = absent
				s.known.objects[key] = e
			}
		}
	}
	now := s.o.Now()
	s.hidden.update(object.Point{ResourceVersion: s.known.rv, Time: now}, now)
}
