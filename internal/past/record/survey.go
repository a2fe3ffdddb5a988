package record

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Survey judges every moment from since to until, for the objects of a selection. It calls f for
// each event that is read, once, with the versions that it shows. The reading begins where that of
// the state at since does, and ends once the record has passed until. A record that does not prove
// the span is read again, without objects if the source can omit them.
func (r *Record) Survey(
	ctx context.Context, s *Selection, since, until time.Time,
	f func(e *consume.Event, versions []*timeline.Version) error,
) ([]timeline.Part, *Reading, error) {
	began, from := time.Now(), timeline.At(since)
	start, w, err := r.findStart(ctx, s, []timeline.Moment{from}, &timeline.Etcds{})
	if err != nil {
		return nil, nil, err
	}
	var in *logStart
	if r.HasSeveralLogs() {
		in, err = r.findStartInLogs(ctx, s, from)
		if err != nil {
			return nil, nil, err
		}
		start = in.start
	}
	survey := timeline.NewSurvey(since, until, timeline.Options{Asked: s.Asks})
	q := consume.Query{Objects: s.objects(), Start: start}
	first, err := r.survey(ctx, s, q, w, in, survey, f)
	if err != nil {
		return nil, nil, err
	}
	for survey.Next() {
		if r.Seeks() && !survey.NeedsObjects() {
			q.Events = consume.StreamEvents
		}
		ignore := func(*consume.Event, []*timeline.Version) error { return nil }
		if _, err := r.survey(ctx, s, q, w, in, survey, ignore); err != nil {
			return nil, nil, err
		}
	}
	first.Began, first.Only = began, r.Lacks(s)
	first.Incomplete = nil // the versions show it
	return survey.Parts(), first, nil
}

// survey is one reading of Survey.
func (r *Record) survey(
	ctx context.Context, s *Selection, q consume.Query, w *window, in *logStart, survey *timeline.Survey,
	f func(*consume.Event, []*timeline.Version) error,
) (*Reading, error) {
	reading, err := r.read(ctx, q, w, s.taken(), func(e *consume.Event) (bool, error) {
		if err := f(e, survey.Add(e)); err != nil {
			return true, err
		}
		if r.HasSeveralLogs() {
			return e.Data == nil && survey.DoneIn(e.Position.Log), nil
		}
		return e.Data == nil && survey.Done(), nil
	})
	if err != nil || !r.HasSeveralLogs() {
		return reading, err
	}
	for _, log := range reading.logs {
		survey.NoteLog(log)
	}
	for _, e := range in.unread(survey.Scopes()) {
		survey.Add(e)
	}
	return reading, nil
}
