package record

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A Kafka has no index of objects, and events about scopes are among all others. Progress is its
// index: it names when the last snapshot began. Each partition has all progress and all events
// about scopes, so one of them shows from where all are read:
//
//	       named          window      moment
//	──┬────┬──────────────┬───────────┬─────▶ one partition
//	  │    │              └ progress says when the last snapshots began
//	  │    └ from here on, each scope has a complete snapshot: this is checked
//	  └ the beginning, if that is not so, or nothing was read of a scope that may exist
//
// A scope of an agent that does not work any more has no progress. If another scope has all objects
// that are asked for, it adds nothing. Otherwise it is looked for in the whole partition.

// logWriter identifies a writer in a log.
type logWriter struct {
	log consume.Log
	writerKey
}

// logEntry identifies an entry of progress in a log.
type logEntry struct {
	logWriter

	resource, scope string
}

// logStart is where to read the state of a moment from a source of several logs.
type logStart struct {
	start consume.Start
	// ends are the ends of scopes before the start, if no snapshot of them is needed.
	ends []*consume.Event
}

// unread returns the ends of scopes that have no records from the start on.
func (l *logStart) unread(read []certainty.Scope) []*consume.Event {
	known := map[scopeKey]bool{}
	for i := range read {
		known[scopeKey{cluster: read[i].ClusterKey(), name: read[i].Name}] = true
	}
	return slices.DeleteFunc(l.ends, func(e *consume.Event) bool {
		return known[scopeKey{cluster: e.ClusterKey(), name: e.Scope}]
	})
}

// logIndex is what one log of each topic says about a moment, as far as it was read.
type logIndex struct {
	moment timeline.Moment
	at     time.Time // the time of the moment
	fold   *timeline.Fold

	scopes  map[scopeKey]*snapshots
	begins  map[logWriter]*consume.Event // the first progress of each writer
	resumes map[runKey]bool              // runs that have resumed a scope: the writer has an earlier run
	// when the last snapshots began, by the last progress at the moment; zero: there is none
	named   map[logEntry]time.Time
	ends    map[scopeKey]*consume.Event // the last end of each scope at the moment
	unnamed bool                        // Fold.Unnamed at the moment
}

// findStartInLogs returns the start from which the state of a moment is read. A resourceVersion has
// no time, so its state is read from the beginning.
func (r *Record) findStartInLogs(ctx context.Context, s *Selection, m timeline.Moment) (*logStart, error) {
	if _, _, isVersion := m.ResourceVersion(); isVersion {
		return &logStart{start: consume.Beginning()}, nil
	}
	at := time.Now() // of a moment that is the end of the record
	if t := m.Time(); !t.IsZero() && t.Before(at) {
		at = t
	}
	latest := at.Add(-windowBefore - windowSkew)
	since := latest
	for growths := 0; ; {
		x, err := r.readIndex(ctx, s, m, at, since)
		if err != nil {
			return nil, err
		}
		if since.IsZero() {
			return r.findStartOfAll(ctx, s, x, latest)
		}
		switch before := x.begun().Add(-windowSkew); {
		case x.beginsTooLate():
			since = at.Add(-windowGrowth * at.Sub(since))
			growths++
			if growths > mostGrowths {
				since = time.Time{}
			}
		case x.lacksSnapshots() && before.Before(since) && !x.begun().IsZero():
			since = before
		case x.lacksSnapshots(), !x.covers(s):
			since = time.Time{}
		default:
			return &logStart{start: consume.Since(x.before(since))}, nil
		}
	}
}

func newIndex(s *Selection, m timeline.Moment, at time.Time) *logIndex {
	return &logIndex{
		moment:  m,
		at:      at,
		fold:    timeline.NewFold(m, timeline.Options{Asked: s.Asks}),
		scopes:  map[scopeKey]*snapshots{},
		begins:  map[logWriter]*consume.Event{},
		resumes: map[runKey]bool{},
		named:   map[logEntry]time.Time{},
		ends:    map[scopeKey]*consume.Event{},
	}
}

// readIndex reads one log of each topic from a time on, until it has passed the moment. A zero time
// is the beginning.
func (r *Record) readIndex(
	ctx context.Context, s *Selection, m timeline.Moment, at, since time.Time,
) (*logIndex, error) {
	x := newIndex(s, m, at)
	q := consume.Query{
		Objects: s.objects(),
		Events:  consume.StreamEvents,
		Start:   consume.Beginning(),
		OneCopy: true,
	}
	if !since.IsZero() {
		q.Start = consume.Since(since)
	}
	_, err := r.read(ctx, q, nil, s.taken(), func(e *consume.Event) (bool, error) {
		if e.Data != nil {
			return false, nil
		}
		x.noteEvent(s, e, m.Includes(e))
		x.fold.Add(e)
		if e.Progress != nil && m.Includes(e) {
			x.unnamed = x.fold.Unnamed()
		}
		return x.fold.DoneIn(e.Position.Log), nil
	})
	return x, err
}

// noteEvent notes an event about scopes. included reports whether it is at the moment or before it.
func (l *logIndex) noteEvent(s *Selection, e *consume.Event, included bool) {
	if e.Progress != nil {
		l.noteProgress(s, e, included)
		return
	}
	if e.Stream == nil {
		return
	}
	key := scopeOf(e)
	l.scope(key).noteEvent(e, included)
	isBegin := e.Type == consume.TypeScopeStarted || e.Type == consume.TypeSnapshotStarted
	switch {
	case isBegin && !e.Stream.Initial:
		l.resumes[runKey{writerKey{e.ClusterKey(), e.Stream.Writer}, e.Stream.Run}] = true
	case e.Type == consume.TypeScopeEnded && included:
		l.ends[key] = e
	}
}

func (l *logIndex) noteProgress(s *Selection, e *consume.Event, included bool) {
	writer := logWriter{e.Position.Log, writerKey{e.ClusterKey(), e.Progress.Writer}}
	if l.begins[writer] == nil {
		l.begins[writer] = e
	}
	for i := range e.Progress.Scopes {
		entry := &e.Progress.Scopes[i]
		if !s.Asks(entry.Resource, entry.Scope) {
			continue
		}
		if entry.Scope != "" {
			l.scope(scopeKey{writer.log, writer.cluster, entry.Scope}).observed = true
		}
		if included {
			l.named[logEntry{writer, entry.Resource, entry.Scope}] = entry.SnapshotBegan
		}
	}
}

// scope returns what was read of a scope.
func (l *logIndex) scope(key scopeKey) *snapshots {
	if l.scopes[key] == nil {
		l.scopes[key] = &snapshots{}
	}
	return l.scopes[key]
}

// begun returns when the first of the last snapshots began; zero: a scope has none.
func (l *logIndex) begun() time.Time {
	var first time.Time
	for _, began := range l.named {
		if began.IsZero() {
			return time.Time{}
		}
		if first.IsZero() || began.Before(first) {
			first = began
		}
	}
	return first
}

// beginsTooLate reports whether the first progress of a writer in a log is too late for the moment,
// and there may be an earlier one.
func (l *logIndex) beginsTooLate() bool {
	latest := l.at.Add(-windowBefore + windowSkew)
	hasProgress := map[consume.Log]bool{}
	for writer, e := range l.begins {
		isFirst := e.Progress.Number == 1 && !l.resumes[runKey{writer.writerKey, e.Progress.Run}]
		if e.Time.After(latest) && !isFirst {
			return true
		}
		hasProgress[writer.log] = true
	}
	for key := range l.scopes {
		if !hasProgress[key.log] {
			return true
		}
	}
	return len(hasProgress) == 0
}

// lacksSnapshots reports whether a scope that was observed at the moment has no snapshot that was
// completed by then, as far as was read.
func (l *logIndex) lacksSnapshots() bool {
	if l.unnamed || l.fold.Unnamed() {
		return true
	}
	ended := l.endedScopes()
	for key, s := range l.scopes {
		if s.before && s.began.IsZero() && !ended[key.ofCluster()] && !isPart(key, l.scopes) {
			return true
		}
	}
	for entry := range l.named {
		key := scopeKey{entry.log, entry.cluster, entry.scope}
		if entry.scope != "" && !ended[key.ofCluster()] && (l.scopes[key] == nil || l.scopes[key].began.IsZero()) {
			return true
		}
	}
	return false
}

// ofCluster returns the key of the scope in any log.
func (k scopeKey) ofCluster() scopeKey { return scopeKey{cluster: k.cluster, name: k.name} }

// endedScopes returns the scopes that have ended at the moment, and of whose objects it is known
// what became of them.
func (l *logIndex) endedScopes() map[scopeKey]bool {
	ended := map[scopeKey]bool{}
	for _, s := range l.fold.Scopes() {
		if s.Ended != nil && s.Ended.Reason != consume.EndForgotten {
			ended[scopeKey{cluster: s.ClusterKey(), name: s.Name}] = true
		}
	}
	return ended
}

// covers reports whether the scopes that were observed at the moment have all objects of a
// selection of one cluster. Another scope that has no records then adds nothing. A question about
// several clusters may be about one that has no agent any more.
func (l *logIndex) covers(s *Selection) bool {
	if s.ClusterUID == "" {
		return false
	}
	type part struct {
		cluster  consume.ClusterKey
		resource string
	}
	observed := map[scopeKey]bool{}
	for key, s := range l.scopes {
		observed[key.ofCluster()] = observed[key.ofCluster()] || !s.began.IsZero()
	}
	clusters, covered := map[consume.ClusterKey]bool{}, map[part]bool{}
	for _, scope := range l.fold.Scopes() {
		key := scopeKey{cluster: scope.ClusterKey(), name: scope.Name}
		clusters[key.cluster] = true
		if scope.Ended == nil && observed[key] && isWhole(&scope, literal(s.Namespace)) {
			covered[part{key.cluster, scope.Resource}] = true
		}
	}
	for cluster := range clusters {
		if cluster.UID != s.ClusterUID { // it is only the beginning of one
			return false
		}
		for _, r := range s.Resources {
			if !covered[part{cluster, r.String()}] {
				return false
			}
		}
	}
	return len(clusters) > 0 && len(s.Resources) > 0
}

// isWhole reports whether a scope has all objects of its resource; of a namespace, unless that is
// "".
func isWhole(s *certainty.Scope, namespace string) bool {
	switch {
	case s.Name == s.Resource:
		return true
	case namespace == "" || namespace == consume.NoNamespace:
		return false
	}
	return !strings.Contains(s.Name, "=") && s.Covers(namespace) // without selectors
}

// findStartOfAll returns the start from which all scopes can be read, if x has one log from its
// beginning on. It is not later than a time.
func (r *Record) findStartOfAll(ctx context.Context, s *Selection, x *logIndex, latest time.Time) (*logStart, error) {
	beginning := &logStart{start: consume.Beginning()}
	isUnknown := len(x.needed()) == 0 && len(x.ends) == 0
	if isUnknown || x.lacksSnapshots() {
		return beginning, nil
	}
	first := x.before(latest)
	later, err := r.readIndex(ctx, s, x.moment, x.at, first)
	if err != nil {
		return nil, err
	}
	if later.lacksSnapshots() {
		return beginning, nil
	}
	has := later.needed()
	for key, began := range x.needed() {
		if !has[key].Equal(began) { // the clock of the bus differs from that of the agent
			return beginning, nil
		}
	}
	out := &logStart{start: consume.Since(first)}
	ended := x.endedScopes()
	for key, e := range x.ends {
		if ended[key.ofCluster()] && e.Time.Before(first) {
			out.ends = append(out.ends, e)
		}
	}
	return out, nil
}

// before returns a time before all needed snapshots, not later than latest. A record with a clock
// that is ahead makes one partition begin earlier than another.
func (l *logIndex) before(latest time.Time) time.Time {
	for _, began := range l.needed() {
		if before := began.Add(-windowSkew); before.Before(latest) {
			latest = before
		}
	}
	return latest
}

// needed returns when the last snapshots began of all scopes whose objects may exist at the moment.
func (l *logIndex) needed() map[scopeKey]time.Time {
	ended, out := l.endedScopes(), map[scopeKey]time.Time{}
	for key, s := range l.scopes {
		if k := key.ofCluster(); s.before && !ended[k] && !isPart(key, l.scopes) &&
			(out[k].IsZero() || s.began.Before(out[k])) {
			out[k] = s.began
		}
	}
	return out
}
