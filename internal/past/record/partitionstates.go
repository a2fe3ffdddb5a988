package record

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// readStatesInLogs is States for a source of several logs. It reads each moment from a start of its
// own: what is between two moments may be long.
func (r *Record) readStatesInLogs(
	ctx context.Context, s *Selection, moments []timeline.Moment,
) (timeline.States, *Reading, error) {
	var states timeline.States
	all := &Reading{Began: time.Now()}
	for k, m := range moments {
		state, reading, err := r.readStateInLogs(ctx, s, m)
		if err != nil {
			return nil, nil, err
		}
		states = append(states, state)
		for about, n := range reading.Unreadable {
			all.Unreadable.Add(about, n)
		}
		all.Incomplete = append(all.Incomplete, reading.Incomplete...)
		if k == 0 {
			all.Latest = reading.Latest
		}
	}
	slices.SortFunc(all.Incomplete, func(a, b Incomplete) int { return strings.Compare(a.Name, b.Name) })
	all.Incomplete = slices.CompactFunc(all.Incomplete, func(a, b Incomplete) bool { return a.Name == b.Name })
	all.keepIncomplete(states, nil)
	all.Only = r.Lacks(s)
	return states, all, nil
}

func (r *Record) readStateInLogs(
	ctx context.Context, s *Selection, m timeline.Moment,
) (*timeline.State, *Reading, error) {
	etcds, err := r.readEtcds(ctx, s, m)
	if err != nil {
		return nil, nil, err
	}
	from, err := r.findStartInLogs(ctx, s, m)
	if err != nil {
		return nil, nil, err
	}
	state := timeline.NewState(m, timeline.Options{Etcd: etcds.Etcd, Asked: s.Asks})
	var latest time.Time
	noting, takes := asksEtcds(s, []timeline.Moment{m}), r.takenWithEtcds(etcds, s)
	young := younger{moment: m, logs: map[consume.Log]bool{}}
	takesAny := taken{func(e *consume.Event) bool { return young.noteEvent(e) || takes.event(e) }, takes.unreadable}
	q := consume.Query{Objects: s.objects(), Start: from.start}
	reading, err := r.read(ctx, q, nil, takesAny, func(e *consume.Event) (bool, error) {
		if young.isEnough(e) {
			return true, nil
		}
		if m.Includes(e) && e.Time.After(latest) {
			latest = e.Time
		}
		state.Add(e)
		return e.Data == nil && !noting && state.DoneIn(e.Position.Log), nil
	})
	if err != nil {
		return nil, nil, err
	}
	r.noteLogs(reading, state)
	for log, isYounger := range young.logs {
		if isYounger && young.hasElder(log) {
			state.DropLog(log)
		}
	}
	for _, e := range from.unread(state.Scopes()) {
		state.Add(e)
	}
	reading.Latest = latest
	return state, reading, nil
}

// younger finds the logs that did not exist at a time, because their topic has grown since. Nothing
// was removed from their beginning, and all records are later.
type younger struct {
	moment timeline.Moment
	logs   map[consume.Log]bool
}

// youngFor is how long a log is read that seems to be younger. The clock of the agent that sent its
// first record may be ahead of others.
const youngFor = 6 * time.Hour

// noteEvent notes a record, and reports isEnough.
func (y *younger) noteEvent(e *consume.Event) bool {
	if y.moment.IsNow() || y.moment.Time().IsZero() {
		return false
	}
	isYounger, known := y.logs[e.Position.Log]
	if !known {
		isYounger = e.Position.Next == 1
	}
	y.logs[e.Position.Log] = isYounger && e.Time.After(y.moment.Time())
	return y.isEnough(e)
}

// hasElder reports whether another log of the topic has a record of the moment.
func (y *younger) hasElder(log consume.Log) bool {
	for other, isYounger := range y.logs {
		if other.Name == log.Name && !isYounger {
			return true
		}
	}
	return false
}

// isEnough reports whether the log of a record is younger, as far as clocks may differ.
func (y *younger) isEnough(e *consume.Event) bool {
	return y.logs[e.Position.Log] && e.Time.After(y.moment.Time().Add(youngFor)) && y.hasElder(e.Position.Log)
}

// areDoneIn reports whether a log has passed the moments of all folds.
func areDoneIn(folds []*timeline.Fold, log consume.Log) bool {
	return !slices.ContainsFunc(folds, func(f *timeline.Fold) bool { return !f.DoneIn(log) })
}

// noteLogs notes the logs that were read, if there are several.
func (r *Record) noteLogs(reading *Reading, folds ...interface{ NoteLog(log consume.Log) }) {
	if !r.HasSeveralLogs() {
		return
	}
	for _, f := range folds {
		for _, log := range reading.logs {
			f.NoteLog(log)
		}
	}
}
