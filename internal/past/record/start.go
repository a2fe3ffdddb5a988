package record

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A JetStream keeps the last start or end of each scope under a subject of its own: this is its
// index.
//
//	 last of scopes      streams                     moment
//	─┬────────┬──────────┬──────┬────────────────────┬──────▶ record
//	 │        │          │      └ the last snapshots began: states are read from here
//	 │        │          └ starts, ends, gaps and snapshots are read from here, a day before the moment
//	 └        └ of scopes that have no start and no end in this part
//
// A scope that was observed at the moment has a snapshot in this part: this is checked. If not, the
// part begins earlier, at last with the record.

// readBefore is how long before a moment the stream events are read. By default, there is a
// snapshot a day.
const readBefore = 25 * time.Hour

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
	observed  bool      // an agent observes it: it is not a part with a snapshot of its own
}

// findStart returns the position from which to read the states of moments, and the events before it
// that they need. In each log, it is the earliest start of a scope's last snapshot completed at all
// of the moments. A scope that was observed by then, but has no such snapshot, is read from the
// beginning. It notes the events for h that it reads.
func (r *Record) findStart(
	ctx context.Context, s *Selection, moments []timeline.Moment, h *timeline.Etcds,
) (consume.Start, *window, error) {
	if !r.Seeks() {
		return consume.Beginning(), nil, nil
	}
	w, err := r.readWindow(ctx, s, moments)
	for err == nil {
		var x *logIndex
		x, err = r.readStart(ctx, s, moments, h, w)
		switch {
		case err != nil:
		case w.grow():
		case w.streams.IsZero() && len(w.lacking(s, x)) > 0: // there may be objects of a scope without a snapshot
			return consume.Beginning(), w, nil
		case w.streams.IsZero():
			return w.startFrom(x), w, nil
		default:
			var isNew bool
			isNew, err = r.lookUp(ctx, s, w, x)
			if err == nil && !isNew && !w.growStreams(s, x) {
				return w.startFrom(x), w, nil
			}
		}
	}
	return consume.Start{}, nil, err
}

// readAround returns the progress to read for the certainty at a moment, of a question that reads
// everything else from the beginning.
func (r *Record) readAround(ctx context.Context, s *Selection, m timeline.Moment, h *timeline.Etcds) (*window, error) {
	if _, _, isVersion := m.ResourceVersion(); isVersion {
		return nil, nil // all of it
	}
	_, w, err := r.findStart(ctx, s, []timeline.Moment{m}, h)
	if w != nil {
		w.known = nil // all of them are read
	}
	return w, err
}

// readBefore returns how long before a moment the stream events are read first.
func (r *Record) readBefore() time.Duration { return cmp.Or(r.before, readBefore) }

// readStart reads the stream events and the progress of a window. It notes in the window what it
// reads.
func (r *Record) readStart(
	ctx context.Context, s *Selection, moments []timeline.Moment, h *timeline.Etcds, w *window,
) (*logIndex, error) {
	w.reset()
	first := w.firstOf(moments)
	x := newIndex(s, first, w.first)
	folds := []*timeline.Fold{x.fold}
	for _, m := range moments {
		if m != first {
			folds = append(folds, timeline.NewFold(m, timeline.Options{Asked: s.Asks}))
		}
	}
	included := func(e *consume.Event) bool {
		return !slices.ContainsFunc(moments, func(m timeline.Moment) bool { return !m.Includes(e) })
	}
	q := consume.Query{Objects: s.objects(), Events: consume.StreamEvents, Start: consume.Beginning()}
	if !w.streams.IsZero() {
		q.Start = consume.Since(w.streams)
	}
	_, err := r.read(ctx, q, w, r.takenWithEtcds(h, s), func(e *consume.Event) (bool, error) {
		if e.Stream == nil && e.Progress == nil {
			return false, nil
		}
		w.noteEvent(e, included(e))
		x.noteEvent(s, e, included(e))
		done := true
		for _, f := range folds {
			f.Add(e)
			done = done && f.Done()
		}
		if e.Progress != nil && included(e) {
			x.unnamed = x.fold.Unnamed()
		}
		return done, nil
	})
	return x, err
}

// lookUp reads the starts and ends of scopes whose last start or end is not enough, and
// reports whether it has found some that were not known:
//
//   - one that has ended, because another agent may have observed it too;
//   - one that was started or ended after the moment, if nothing else of it was read;
//   - those of a resource, if an agent had more scopes of it than are known (see lacking).
func (r *Record) lookUp(ctx context.Context, s *Selection, w *window, x *logIndex) (isNew bool, err error) {
	ended := map[scopeKey]bool{}
	for _, scope := range x.fold.Scopes() {
		if scope.Ended != nil {
			ended[scopeKey{cluster: scope.ClusterKey(), name: scope.Name}] = true
		}
	}
	lacking := w.lacking(s, x)
	var unclear []consume.Objects
	for key, e := range w.scopes {
		known := x.scopes[key] != nil && x.scopes[key].before
		isUnclear := s.Takes(e) && (ended[key.ofCluster()] || !known)
		if !w.looked[key] && (isUnclear || lacking[e.GroupResource()]) {
			w.looked[key] = true
			unclear = append(unclear, consume.Objects{Groups: []string{
				e.Group(),
			}, Resource: e.Resource, Scope: e.Scope})
		}
	}
	if len(unclear) == 0 {
		return false, nil
	}
	type byWriter struct {
		scopeKey

		writer string
	}
	first, found := map[byWriter]*consume.Event{}, marks{}
	q := consume.Query{
		Objects:       unclear,
		Events:        consume.ScopeEvents,
		Start:         consume.Beginning(),
		ProgressSince: time.Now(),
	}
	_, err = r.read(ctx, q, nil, s.ofCluster(), func(e *consume.Event) (bool, error) {
		key := scopeOf(e)
		if e.Stream == nil || !w.looked[key] || e.Type == consume.TypeGap {
			return false, nil
		}
		if of := (byWriter{key, e.Stream.Writer}); first[of] == nil {
			first[of] = e
		}
		if x.moment.Includes(e) {
			found.noteEvent(e)
		}
		return false, nil
	})
	for _, e := range first {
		isFirst := e.Type == consume.TypeScopeStarted && e.Stream.Initial
		if !isFirst && !x.moment.Includes(e) { // retention may have removed an earlier start, but not all that followed
			w.streams, w.known = time.Time{}, nil
			return true, err
		}
	}
	for key, e := range found {
		if known := w.marks[key]; known == nil || known.Position != e.Position {
			w.known[key], isNew = e, true
		}
	}
	return isNew, err
}

// markOf identifies the last event of one type about a scope by an agent.
type markOf struct {
	scopeKey

	writer string
	kind   consume.EventType
}

// isSnapshot reports whether the event is about a snapshot, which may be one of a part of the
// scope.
func (m markOf) isSnapshot() bool {
	return m.kind == consume.TypeSnapshotStarted || m.kind == consume.TypeSnapshotCompleted
}

// marks are starts and ends of scopes and of their snapshots.
type marks map[markOf]*consume.Event

// noteEvent notes a start or an end, of a scope or of its snapshot. One that is continued is the
// same snapshot.
func (m marks) noteEvent(e *consume.Event) {
	of := markOf{scopeOf(e), e.Stream.Writer, e.Type}
	isContinued := of.isSnapshot() && e.Stream.Continued
	if e.Type != consume.TypeGap && !isContinued {
		m[of] = e
	}
}

// noteFirst is note for the first event of a type, and not the last one.
func (m marks) noteFirst(e *consume.Event) {
	of := markOf{scopeOf(e), e.Stream.Writer, e.Type}
	if m[of] == nil {
		m.noteEvent(e)
	}
}

// snapshots returns the marks of snapshots that a state needs. One is the first mark that shows
// that an agent observes the scope: retention may have removed the starts of the scope and of its
// snapshot. Others are of scopes that several agents observe: each heals its own gaps.
func (m marks) snapshots() (needed []markOf) {
	writers, isShared := map[scopeKey]string{}, map[scopeKey]bool{}
	for of := range m {
		other, isKnown := writers[of.scopeKey]
		isShared[of.scopeKey] = isShared[of.scopeKey] || isKnown && other != of.writer
		writers[of.scopeKey] = of.writer
	}
	for of := range m {
		hasStart := m[markOf{of.scopeKey, of.writer, consume.TypeScopeStarted}] != nil
		isFirst := of.kind == consume.TypeSnapshotStarted ||
			m[markOf{of.scopeKey, of.writer, consume.TypeSnapshotStarted}] == nil
		if of.isSnapshot() && isFirst && (!hasStart || isShared[of.scopeKey]) {
			needed = append(needed, of)
		}
	}
	return needed
}

func scopeOf(e *consume.Event) scopeKey { return scopeKey{e.Position.Log, e.ClusterKey(), e.Scope} }

func (s *snapshots) noteEvent(e *consume.Event, included bool) {
	s.before = s.before || included
	switch e.Type {
	case consume.TypeScopeStarted, consume.TypeScopeEnded, consume.TypeGap:
		s.observed = true
	case consume.TypeSnapshotStarted:
		// A second start is that of a continued snapshot, whose earlier reads count, or are gone.
		if s.id != e.Stream.Snapshot && !e.Stream.Continued {
			s.id = e.Stream.Snapshot
			s.started = e.Position.Next - 1
			s.startedAt = e.Time
		}
	case consume.TypeSnapshotCompleted:
		if included && s.id == e.Stream.Snapshot {
			s.completed, s.began = s.started, s.startedAt
		}
	case consume.TypeProgress:
	}
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
