package store

import (
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
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
	keep    time.Time // those that ended before are former ones
}

type notedSpan struct {
	object.HiddenSpan
	noted  time.Time // when it ended; zero: it has not
	before bool      // its versions are of the history before a restore of etcd
}

const (
	// hiddenNearby is the time between two spans that are reported as one.
	hiddenNearby = time.Minute
	// maxFormer bounds the former spans. The earliest ones are joined.
	maxFormer = 16
)

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

// noteOutcomeLocked notes that a delta of a key was sent or withheld. before is what consumers
// lacked of the object, the result what they lack now.
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
	if exists && next != shown {
		s.hidden.beginAt(at.ResourceVersion)
	}
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
	h.prune()
	n = len(h.spans)
	if n > 0 && !h.spans[n-1].before && now.Sub(h.spans[n-1].noted) <= hiddenNearby {
		h.spans[n-1].Until, h.spans[n-1].noted = object.Point{}, time.Time{}
		return
	}
	h.spans = append(h.spans, notedSpan{HiddenSpan: object.HiddenSpan{From: at}})
}

// beginAt makes the open span begin at rv, if that is earlier: a list makes versions pending in the
// order of keys. There must be an open span.
func (h *hiding) beginAt(rv uint64) {
	from := &h.spans[len(h.spans)-1].From
	from.ResourceVersion = min(from.ResourceVersion, rv)
}

// prune joins the earliest former spans if there are many, and drops those of a former history.
func (h *hiding) prune() {
	h.spans = slices.DeleteFunc(h.spans, func(s notedSpan) bool { return s.before && s.noted.Before(h.keep) })
	for len(h.spans) > maxFormer && !h.spans[0].before && h.spans[1].noted.Before(h.keep) {
		h.spans[1].From = h.spans[0].From
		h.spans = slices.Delete(h.spans, 0, 1)
	}
}

// report returns the spans that progress lists: the open one, those that ended at since or later,
// and those that reach above the version that the bus has. Otherwise a reader that begins here
// would not know of them: they are not over at that version. former are the rest. Progress lists
// them if it claims an earlier version.
func (h *hiding) report(since time.Time, rv uint64) (all, former []object.HiddenSpan) {
	h.keep = since
	for _, s := range h.spans {
		switch {
		case s.noted.IsZero(), !s.noted.Before(since), !s.before && s.Until.ResourceVersion > rv:
			all = append(all, s.HiddenSpan)
		case !s.before:
			former = append(former, s.HiddenSpan)
		}
	}
	return all, former
}

// rewind notes that etcd was restored, which had come up to a point. Versions start over, so an
// open span has two parts.
func (h *hiding) rewind(at object.Point) {
	n := len(h.spans)
	isOpen := n > 0 && h.spans[n-1].noted.IsZero()
	if isOpen {
		last := &h.spans[n-1]
		last.Until, last.noted = at, at.Time
	}
	for i := range h.spans {
		h.spans[i].before = true
	}
	if isOpen {
		h.spans = append(h.spans, notedSpan{HiddenSpan: object.HiddenSpan{From: object.Point{
			ResourceVersion: 1,
			Time:            at.Time,
		}}})
	}
}

// covers reports whether a position is inside a span.
func (h *hiding) covers(rv uint64) bool {
	return slices.ContainsFunc(h.spans, func(s notedSpan) bool {
		return !s.before && s.From.ResourceVersion <= rv && (s.noted.IsZero() || rv < s.Until.ResourceVersion)
	})
}

// inherit takes over that a former run has withheld something, up to a point.
func (h *hiding) inherit(from object.Point, now time.Time) {
	h.gone++
	h.update(from, now)
}

// inheritHiddenLocked takes over that a former run has withheld something up to its checkpoint.
func (s *Store) inheritHiddenLocked(c *checkpoint.Scope) {
	s.hidden.inherit(object.Point{ResourceVersion: c.ResourceVersion, Time: s.Past(c.LastSeen)}, s.o.Now())
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
