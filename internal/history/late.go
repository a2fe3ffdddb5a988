package history

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// lateBefore is how long before the end of a history without a beginning its late spans are looked for.
// Only progress shows them, and a long record has more of that than changes.
const lateBefore = 25 * time.Hour

// growForLate makes the window of a history without a beginning long enough for its late spans. It
// returns the time from which on they are found; zero: all are.
func (w *window) growForLate(to timeline.Moment) time.Time {
	if w == nil || w.since.IsZero() {
		return time.Time{}
	}
	end := to.Time()
	var last time.Time // of all progress
	for _, e := range w.last {
		if e.Time.After(last) {
			last = e.Time
		}
	}
	if last.Before(end) {
		end = last
	}
	from := end.Add(-lateBefore)
	if since := from.Add(-windowBefore - windowSkew); since.Before(w.since) {
		w.since = since
	}
	return from
}

// lateSpans passes on the late spans of a fold.
type lateSpans struct {
	*Record

	fold  *timeline.Fold
	since *timeline.Moment // nil: the beginning of the record
	from  time.Time        // earlier ones are left out
}

// take passes on what is known after an event.
func (l *lateSpans) take(e *consume.Event) error {
	if l.OnLate == nil {
		return nil
	}
	if l.since != nil && l.since.Includes(e) && e.Time.After(l.from) {
		l.from = e.Time // of a resourceVersion, no time is known
	}
	if e.Progress == nil {
		return nil
	}
	return l.pass(false)
}

// end passes on the others.
func (l *lateSpans) end() error {
	if l.OnLate == nil {
		return nil
	}
	return l.pass(true)
}

func (l *lateSpans) pass(isOver bool) error {
	from := l.from
	if l.since != nil && !l.since.Time().IsZero() {
		from = l.since.Time()
	}
	all := l.fold.Late(from, isOver)
	if len(all) == 0 {
		return nil
	}
	return l.OnLate(all)
}
