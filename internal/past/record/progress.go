package record

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
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
	// windowGrowth is how much longer. After mostGrowths, two days, the question reads all
	// progress.
	windowGrowth = 6
	mostGrowths  = 3
)

// window is the progress that a question reads, and the stream events that it needs to find its
// start. The zero value is all of them.
type window struct {
	first time.Time // moment
	since time.Time // when the bus stored its first progress; zero: it begins with the record
	// streams is when the bus stored its first stream event; zero: it begins with the record.
	streams time.Time
	// last has the last progress of each writer, in the order of the record. Those before the
	// window are known from here.
	last []*consume.Event
	// scopes has the last start, end or gap of each scope of the resources.
	scopes map[scopeKey]*consume.Event
	// known has starts and ends of scopes that are to be read, too.
	known  marks
	looked map[scopeKey]bool // scopes whose starts and ends were looked up

	// The fields below are what was read of the window.
	marks   marks
	firsts  marks // the first ones
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

// readWindow returns the progress to read for moments. Only a source that sends progress alone can
// leave any out. A moment that is a resourceVersion has no time to begin at.
func (r *Record) readWindow(ctx context.Context, s *Selection, moments []timeline.Moment) (*window, error) {
	w := &window{first: time.Now()} // of a moment that is the end of the record
	for _, m := range moments {
		if _, _, isVersion := m.ResourceVersion(); isVersion {
			return w, nil
		}
		if at := m.Time(); !at.IsZero() && at.Before(w.first) {
			w.first = at
		}
	}
	if !r.Seeks() {
		return w, nil
	}
	last := map[writerKey]*consume.Event{}
	w.scopes = map[scopeKey]*consume.Event{}
	w.known = marks{}
	w.looked = map[scopeKey]bool{}
	q := consume.Query{
		Objects:    s.objects(),
		Events:     consume.ScopeEvents,
		Start:      consume.Beginning(),
		LastOfEach: true,
	}
	_, err := r.read(ctx, q, nil, s.ofCluster(), func(e *consume.Event) (bool, error) {
		switch {
		case e.Progress != nil && s.Takes(e):
			last[writerKey{e.ClusterKey(), e.Progress.Writer}] = e
		case e.Stream != nil:
			w.scopes[scopeOf(e)] = e
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	w.last = slices.SortedFunc(maps.Values(last), comparePositions)
	for _, e := range w.scopes {
		if s.Takes(e) && w.firstOf(moments).Includes(e) {
			w.known.noteEvent(e)
		}
	}
	w.since = w.first.Add(-windowBefore - windowSkew)
	w.streams = w.first.Add(-r.readBefore())
	return w, nil
}

// ofCluster takes the events of all objects of the clusters.
func (s *Selection) ofCluster() taken {
	return taken{unreadable: s.MayTake, event: func(e *consume.Event) bool {
		return e.DeadLetterReason == "" && s.takesCluster(e)
	}}
}

func comparePositions(a, b *consume.Event) int { return cmp.Compare(a.Position.Next, b.Position.Next) }

// firstOf returns the first of some moments.
func (w *window) firstOf(moments []timeline.Moment) timeline.Moment {
	for _, m := range moments {
		if m.Time().Equal(w.first) {
			return m
		}
	}
	return moments[0]
}

// earlier returns the events that are known, of those that the window leaves out. They may include
// some that it does not.
func (w *window) earlier() []*consume.Event {
	out := slices.Collect(maps.Values(w.known))
	if !w.since.IsZero() {
		out = append(out, w.last...)
	}
	slices.SortFunc(out, comparePositions)
	return out
}

// reset drops what was read of the window.
func (w *window) reset() {
	w.from = 0
	w.marks, w.firsts = marks{}, marks{}
	w.begins, w.resumes = map[writerKey]*consume.Event{}, map[runKey]bool{}
}

// noteEvent notes an event that was read. included reports whether it is at the moment or before
// it.
func (w *window) noteEvent(e *consume.Event, included bool) {
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
	if included {
		w.marks.noteEvent(e)
		w.firsts.noteFirst(e)
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
	w.growths++
	if w.growths > mostGrowths {
		w.since = time.Time{}
		w.streams = time.Time{}
		w.known = nil
		return true
	}
	w.since = w.first.Add(-windowGrowth * w.first.Sub(w.since))
	if w.since.Before(w.streams) {
		w.streams = w.since
	}
	return true
}

// growStreams makes the part of the stream events longer if it lacks the snapshot of a scope, or
// may lack a scope, and reports whether it did.
func (w *window) growStreams(s *Selection, x *logIndex) bool {
	if !x.lacksSnapshots() && len(w.lacking(s, x)) == 0 {
		return false
	}
	begun := x.begun()
	if before := begun.Add(-windowSkew); !begun.IsZero() && before.Before(w.streams) {
		w.streams = before
		return true
	}
	w.streams, w.known = time.Time{}, nil
	return true
}

// lacking returns the resources with unknown scopes: an agent that did not work at the moment had
// more scopes of them than it is known to have started or ended. It may have started them before
// another agent did, or retention has removed the starts. Then their snapshots may still be there.
func (w *window) lacking(s *Selection, x *logIndex) map[string]bool {
	type of struct {
		writerKey

		resource string
	}
	scopes := map[of]map[scopeKey]bool{}
	note := func(e *consume.Event) {
		by := of{writerKey{e.ClusterKey(), e.Stream.Writer}, e.GroupResource()}
		if scopes[by] == nil {
			scopes[by] = map[scopeKey]bool{}
		}
		scopes[by][scopeOf(e)] = true
	}
	for _, e := range w.scopes {
		note(e)
	}
	for _, all := range []marks{w.known, w.marks} {
		for of, e := range all {
			isShown := !of.isSnapshot() || w.streams.IsZero() && !isPart(of.scopeKey, x.scopes)
			if isShown {
				note(e)
			}
		}
	}
	out := map[string]bool{}
	for _, e := range w.last {
		writer := writerKey{e.ClusterKey(), e.Progress.Writer}
		if !x.moment.Includes(e) || w.begins[writer] != nil {
			continue
		}
		has := map[string]int{}
		for i := range e.Progress.Scopes {
			if entry := &e.Progress.Scopes[i]; s.Resources == nil || s.Has(entry.Resource) {
				has[entry.Resource] += max(entry.Count, 1)
			}
		}
		for resource, n := range has {
			if len(scopes[of{writer, resource}]) < n {
				out[resource] = true
			}
		}
	}
	return out
}

// startFrom returns the start from which the state is read. It sets known to the earlier events
// that the state needs.
func (w *window) startFrom(x *logIndex) consume.Start {
	w.known = marks{}
	isUnended := func(scopeKey) bool { return true }
	if !w.since.IsZero() {
		ended := x.endedScopes()
		isUnended = func(key scopeKey) bool { return !ended[key.ofCluster()] }
	}
	first, found := consume.Position{}, false
	for key, s := range x.scopes {
		if s.before && isUnended(key) && !isPart(key, x.scopes) && (!found || s.completed < first.Next) {
			first, found = consume.Position{Log: key.log, Next: s.completed}, true
		}
	}
	for _, of := range w.marks.snapshots() {
		if found && !isPart(of.scopeKey, x.scopes) {
			first.Next = min(first.Next, w.marks[of].Position.Next-1)
		}
	}
	if first.Next == 0 {
		return consume.Beginning()
	}
	for _, some := range []marks{w.firsts, w.marks} { // an agent that starts often has an earlier start than its last
		for of, e := range some {
			if !of.isSnapshot() && e.Position.Next <= first.Next {
				w.known[of] = e
			}
		}
	}
	return consume.After(first)
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
