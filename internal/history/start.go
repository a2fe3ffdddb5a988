package history

import (
	"context"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// scopeKey identifies a scope in a log.
type scopeKey struct {
	log     consume.Log
	cluster consume.ClusterKey
	name    string
}

// snapshots has the snapshots of one scope.
type snapshots struct {
	id        string    // of the last started one
	started   uint64    // position of its first start
	startedAt time.Time // the time of that
	completed uint64    // position of the start of the last one that was completed at the moment; 0 if there is none
	began     time.Time // the time of that; zero if there is none
	before    bool      // the scope has stream events at or before the moment
	observed  bool      // an agent observes it: it is no part of which a snapshot was taken
}

// start returns the position from which to read the states of moments, and the progress to read. In
// each log, it is the earliest start of a scope's last snapshot completed at all of the moments. A
// scope that was observed by then, but has no such snapshot, is read from the beginning. It notes
// the events for h that it reads.
func (r *Record) start(
	ctx context.Context, s *Selection, moments []timeline.Moment, h *timeline.Histories,
) (consume.Start, *window, error) {
	if !r.Seek {
		return consume.Beginning(), nil, nil
	}
	w, err := r.window(ctx, s, moments)
	for err == nil {
		var start consume.Start
		start, err = r.startIn(ctx, s, moments, h, w)
		if err == nil && !w.grow() {
			return start, w, nil
		}
	}
	return consume.Start{}, nil, err
}

// around returns the progress to read for the certainty at a moment, of a question that reads
// everything else from the beginning.
func (r *Record) around(ctx context.Context, s *Selection, m timeline.Moment, h *timeline.Histories) (*window, error) {
	if _, _, isVersion := m.ResourceVersion(); isVersion {
		return nil, nil // all of it
	}
	_, w, err := r.start(ctx, s, []timeline.Moment{m}, h)
	return w, err
}

// startIn is start for one window. It notes in the window what it reads.
func (r *Record) startIn(
	ctx context.Context, s *Selection, moments []timeline.Moment, h *timeline.Histories, w *window,
) (consume.Start, error) {
	w.begin()
	all := map[scopeKey]*snapshots{}
	var folds []*timeline.Fold
	for _, m := range moments {
		folds = append(folds, timeline.NewFold(m, timeline.Options{Asked: s.Asks}))
	}
	included := func(e *consume.Event) bool {
		return !slices.ContainsFunc(moments, func(m timeline.Moment) bool { return !m.Includes(e) })
	}
	q := consume.Query{Objects: s.objects(), Events: consume.StreamEvents, Start: consume.Beginning()}
	_, err := r.read(ctx, q, w, r.noting(h, s), func(e *consume.Event) (bool, error) {
		if e.Stream == nil && e.Progress == nil {
			return false, nil
		}
		w.note(e)
		if e.Stream != nil {
			key := scopeKey{e.Position.Log, e.ClusterKey(), e.Scope}
			if all[key] == nil {
				all[key] = &snapshots{}
			}
			all[key].note(e, included(e))
		}
		done := true
		for _, f := range folds {
			f.Add(e)
			done = done && f.Done()
		}
		return done, nil
	})
	if err != nil {
		return consume.Start{}, err
	}
	return earliest(all), nil
}

func (s *snapshots) note(e *consume.Event, included bool) {
	s.before = s.before || included
	switch e.Type {
	case consume.TypeScopeStarted, consume.TypeScopeEnded, consume.TypeGap:
		s.observed = true
	case consume.TypeSnapshotStarted:
		// A second start is that of a continued snapshot, whose earlier reads count, or are gone.
		if s.id != e.Stream.Snapshot && !e.Stream.Continued {
			s.id, s.started, s.startedAt = e.Stream.Snapshot, e.Position.Next-1, e.Time
		}
	case consume.TypeSnapshotCompleted:
		if included && s.id == e.Stream.Snapshot {
			s.completed, s.began = s.started, s.startedAt
		}
	}
}

// earliest returns the first position from which all scopes can be read.
func earliest(all map[scopeKey]*snapshots) consume.Start {
	first := map[consume.Log]uint64{}
	for key, s := range all {
		if !s.before || isPart(key, all) {
			continue
		}
		if at, ok := first[key.log]; !ok || s.completed < at {
			first[key.log] = s.completed
		}
	}
	var positions []consume.Position
	for log, next := range first {
		if next > 0 {
			positions = append(positions, consume.Position{Log: log, Next: next})
		}
	}
	if len(positions) == 0 {
		return consume.Beginning()
	}
	return consume.After(positions...)
}

// isPart reports whether the key is that of a snapshot of a part of another scope.
func isPart(key scopeKey, all map[scopeKey]*snapshots) bool {
	if all[key].observed {
		return false
	}
	for of := range all {
		if of.log == key.log && of.cluster == key.cluster && consume.IsPartOf(key.name, of.name) {
			return true
		}
	}
	return false
}
