package history

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Each agent sends a progress a minute, so a long record has more of them than changes. A question
// about times reads those around its moments:
//
//	  last of w1          window
//	─────┬──────────────┬──────────┬──────▶ record
//	     │              since      moment
//	     └ of a writer that has none in the window
//
// A progress has what happened in the ten minutes before it, and says since when it has all of that
// (consume.Progress.Since). So an answer from fewer of them is never more certain.

const (
	// windowBefore is how long before a moment the window begins at least. Progress has all
	// interruptions of the last ten minutes, and comes once a minute.
	windowBefore = 12 * time.Minute
	// windowSkew is how much the clocks of agents and of the bus may differ. If they differ more,
	// or a writer was silent, the window is made longer.
	windowSkew = 2 * time.Minute
	// windowGrowth is how much longer. After mostGrowths, two days, the question reads all progress.
	windowGrowth = 6
	mostGrowths  = 3
)

// window is the progress that a question reads. The zero value is all of it.
type window struct {
	first time.Time // moment
	since time.Time // when the bus stored the first of it; zero: it begins with the record
	// last has the last progress of each writer, in the order of the record. Those before the window
	// are known from here.
	last []*consume.Event

	// The fields below are what was read of the window.
	growths int
	from    uint64                       // the position of its first progress; 0: it has none
	begins  map[writerKey]*consume.Event // the first progress of each writer
	resumes map[runKey]bool              // runs that have resumed a scope: the writer has an earlier run
}

type writerKey struct {
	cluster consume.ClusterKey
	name    string
}

type runKey struct {
	writerKey
	run string
}

// window returns the progress to read for moments. Only a source that sends progress alone can
// leave any out. A moment that is a resourceVersion has no time to begin at.
func (r *Record) window(ctx context.Context, s *Selection, moments []timeline.Moment) (*window, error) {
	w := &window{first: time.Now()} // of a moment that is the end of the record
	for _, m := range moments {
		if _, _, isVersion := m.ResourceVersion(); isVersion {
			return w, nil
		}
		if at := m.Time(); !at.IsZero() && at.Before(w.first) {
			w.first = at
		}
	}
	if !r.Seek {
		return w, nil
	}
	last := map[writerKey]*consume.Event{}
	q := consume.Query{Events: consume.ProgressEvents, Start: consume.Beginning(), LastOfEach: true}
	_, err := r.read(ctx, q, nil, s.taken(), func(e *consume.Event) (bool, error) {
		if e.Progress != nil {
			last[writerKey{e.ClusterKey(), e.Progress.Writer}] = e
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	w.last = slices.SortedFunc(maps.Values(last), func(a, b *consume.Event) int {
		return cmp.Compare(a.Position.Next, b.Position.Next)
	})
	w.since = w.first.Add(-windowBefore - windowSkew)
	return w, nil
}

// begin drops what was read of the window.
func (w *window) begin() {
	w.from = 0
	w.begins, w.resumes = map[writerKey]*consume.Event{}, map[runKey]bool{}
}

// note notes an event that was read.
func (w *window) note(e *consume.Event) {
	if p := e.Progress; p != nil {
		key := writerKey{e.ClusterKey(), p.Writer}
		if w.begins[key] != nil || slices.Contains(w.last, e) {
			return
		}
		w.begins[key] = e
		if w.from == 0 {
			w.from = e.Position.Next
		}
		return
	}
	isBegin := e.Type == consume.TypeScopeStarted || e.Type == consume.TypeSnapshotStarted
	if isBegin && !e.Stream.Initial {
		w.resumes[runKey{writerKey{e.ClusterKey(), e.Stream.Writer}, e.Stream.Run}] = true
	}
}

// grow makes the window longer if it begins too late for a writer, and reports whether it did.
func (w *window) grow() bool {
	if w.since.IsZero() || !w.beginsTooLate() {
		return false
	}
	if w.growths++; w.growths > mostGrowths {
		w.since = time.Time{}
		return true
	}
	w.since = w.first.Add(-windowGrowth * w.first.Sub(w.since))
	return true
}

// beginsTooLate reports whether the first progress that is known of a writer is too late for the
// moment, and there may be an earlier one.
func (w *window) beginsTooLate() bool {
	latest := w.first.Add(-windowBefore + windowSkew)
	for key, e := range w.begins {
		isFirst := e.Progress.Number == 1 && !w.resumes[runKey{key, e.Progress.Run}] // of the writer
		if e.Time.After(latest) && !isFirst {
			return true
		}
	}
	return slices.ContainsFunc(w.last, func(e *consume.Event) bool {
		isBefore := w.from == 0 || e.Position.Next < w.from // the window
		return isBefore && e.Time.After(latest)
	})
}

// before returns the progress that comes before a position in the record, and that was not returned
// yet. rest is what is left. A zero position is the end.
func before(rest []*consume.Event, at consume.Position) (due, left []*consume.Event) {
	n := 0
	for n < len(rest) && (at.Next == 0 || rest[n].Position.Next < at.Next) {
		n++
	}
	return rest[:n], rest[n:]
}
