package record

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// lateSpans passes on the late spans of a fold. A history without a beginning is read without the
// progress that shows them, unless the source sends everything. Then they are not known: a long
// record has more progress than changes.
type lateSpans struct {
	*Record

	isUnknown bool

	fold  *timeline.Fold
	since *timeline.Moment // nil: the beginning of the record
	from  time.Time        // of since, as far as it is known
}

// takeEvent passes on what is known after an event.
func (l *lateSpans) takeEvent(e *consume.Event) error {
	if l.OnLate == nil || l.isUnknown {
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
	if l.OnLate == nil || l.isUnknown {
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
