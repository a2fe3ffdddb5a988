package record

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Span returns the state at a moment, and calls f for each later version up to another moment, in
// the order in which they are read. It also returns the certainty of each scope at the later
// moment.
func (r *Record) Span(
	ctx context.Context, s *Selection, from, to timeline.Moment, f func(*timeline.Version),
) (*timeline.State, []certainty.Scope, *Reading, error) {
	began := time.Now()
	etcds, err := r.readEtcds(ctx, s, from, to)
	if err != nil {
		return nil, nil, nil, err
	}
	start, w, err := r.findStart(ctx, s, []timeline.Moment{from}, etcds)
	if err != nil {
		return nil, nil, nil, err
	}
	o := timeline.Options{Etcd: etcds.Etcd, Asked: s.Asks}
	state, fold := timeline.NewState(from, o), timeline.NewFold(to, o)
	var in *logStart
	if r.HasSeveralLogs() {
		in, err = r.findStartInLogs(ctx, s, from)
		if err != nil {
			return nil, nil, nil, err
		}
		start = in.start
	}
	noting := !r.Seeks() && asksEtcds(s, []timeline.Moment{from, to})
	var latest time.Time
	shown := map[string]bool{} // objects with a shown version that lacks a part
	reading, err := r.read(ctx, consume.Query{Objects: s.objects(), Start: start}, w, r.takenWithEtcds(etcds, s),
		func(e *consume.Event) (bool, error) {
			included := from.Includes(e)
			if included && e.Time.After(latest) {
				latest = e.Time
			}
			state.Add(e)
			for _, v := range fold.Add(e) {
				if !included {
					f(v)
					if v.After == nil && !v.Gone() {
						shown[certainty.ObjectName(v.Resource, v.Namespace, v.Name)] = true
					}
				}
			}
			if r.HasSeveralLogs() {
				log := e.Position.Log
				return e.Data == nil && !noting && state.DoneIn(log) && fold.DoneIn(log), nil
			}
			return r.Seeks() && fold.Done(), nil
		})
	if err != nil {
		return nil, nil, nil, err
	}
	r.noteLogs(reading, state, fold)
	if in != nil {
		for _, e := range in.unread(state.Scopes()) {
			state.Add(e)
			fold.Add(e)
		}
	}
	reading.keepIncomplete(timeline.States{state}, shown)
	reading.Began = began
	reading.Latest = latest
	reading.Only = r.Lacks(s)
	return state, fold.Scopes(), reading, nil
}
