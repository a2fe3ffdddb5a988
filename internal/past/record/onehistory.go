package record

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A named object has no version before its first record, which the index of a JetStream finds. So
// its history costs what happened since then, and not the length of the record:
//
//	gaps          snapshots, starts, ends       first record      until
//	─┬────────────┬─────────────────────────────┬─────────────────┬─────▶ record
//	 │            └ all stream events are read from here
//	 └ gaps alone: an earlier object of the name may be missing

// findStartOfOne returns where to read the versions of the one object of a selection from, up to a
// moment, and the progress to read. Only a source that sends stream events alone can leave any out.
func (r *Record) findStartOfOne(
	ctx context.Context, s *Selection, to timeline.Moment, h *timeline.Etcds,
) (consume.Start, *window, error) {
	w, err := r.readAround(ctx, s, to, h)
	if err != nil || w == nil || !r.Seeks() || !s.IsOne() {
		return consume.Beginning(), w, err
	}
	first, err := r.readFirst(ctx, s)
	if err != nil || first == nil || !to.Includes(first) {
		return consume.Beginning(), w, err
	}
	start, begin, err := r.findStart(ctx, s, []timeline.Moment{timeline.At(first.Time)}, h)
	if err != nil || len(start.Positions()) != 1 {
		return consume.Beginning(), w, err
	}
	p := start.Positions()[0]
	p.Next = min(p.Next, first.Position.Next-1) // the clock of another agent may be ahead
	if p.Next == 0 {
		return consume.Beginning(), w, nil
	}
	w.known = begin.known
	return consume.After(p), w, nil
}

// readFirst returns the first event of an object of a selection, nil if there is none.
func (r *Record) readFirst(ctx context.Context, s *Selection) (first *consume.Event, err error) {
	q := consume.Query{Objects: s.objects(), Events: consume.ObjectEvents, Start: consume.Beginning()}
	_, err = r.read(ctx, q, nil, s.taken(), func(e *consume.Event) (bool, error) {
		if e.Data != nil {
			first = e
		}
		return first != nil, nil
	})
	return first, err
}

// eachEarlierGap calls f for each gap up to a moment that precedes a start, in the order of the
// record.
func (r *Record) eachEarlierGap(
	ctx context.Context, s *Selection, start consume.Start, to timeline.Moment, f func(gap *consume.Event) error,
) error {
	positions := start.Positions()
	if len(positions) != 1 {
		return nil
	}
	q := consume.Query{
		Objects:       s.objects(),
		Events:        consume.ScopeEvents,
		Start:         consume.Beginning(),
		ProgressSince: time.Now(),
	}
	_, err := r.read(ctx, q, nil, s.taken(), func(e *consume.Event) (bool, error) {
		switch {
		case e.Position.Next > positions[0].Next:
			return true, nil
		case e.Type == consume.TypeGap && to.Includes(e):
			return false, f(e)
		}
		return false, nil
	})
	return err
}
