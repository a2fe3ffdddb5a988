package timeline

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// logFold is the part of a Fold for one log. A topic may have several logs, its partitions. Each
// has all stream events of its scopes, and the events of some objects, so each log is judged alone.
type logFold struct {
	objects consume.Tracker // of events up to the moment
	stream  consume.Tracker // of stream events alone, also after the moment
	scopes  map[scopeKey]*scope
	places  map[place]*int // of objects: how many versions filters withheld
	// hasChanged has the objects of the moment that have an event after it.
	hasChanged  map[objectKey]bool
	deadLetters map[deadLetterKey]*deadLetter
	writers     map[writerKey]*writer
	unnamed     map[entryKey]bool // see Fold.Unnamed
	isJoined    bool              // see Options.Joined
	edges       *edges

	keepsLate bool              // see Options.Late
	mayBeLate map[scopeKey]bool // scopes that may have late spans
	now       time.Time         // of the last progress

	// restarted has the scopes that had ended at the moment, and were started again after it;
	// restartSnapshots has their snapshots.
	restarted        map[scopeKey]bool
	restartSnapshots map[snapshotKey]bool
}

// logOf returns the part for a log. If the Fold does not have it yet, it is added.
func (f *Fold) logOf(log consume.Log) *logFold {
	l := f.logs[log]
	if l == nil {
		l = &logFold{
			scopes:      map[scopeKey]*scope{},
			places:      map[place]*int{},
			hasChanged:  map[objectKey]bool{},
			deadLetters: map[deadLetterKey]*deadLetter{},
			writers:     map[writerKey]*writer{},
			isJoined:    f.opts.Joined,
			unnamed:     map[entryKey]bool{},
			edges:       f.edges,
			keepsLate:   f.opts.Late,
			mayBeLate:   map[scopeKey]bool{},

			restarted:        map[scopeKey]bool{},
			restartSnapshots: map[snapshotKey]bool{},
		}
		f.logs[log] = l
	}
	return l
}

// scope returns the scope of a key. If the log does not have it yet, it is added.
func (l *logFold) scope(key scopeKey, resource string) *scope {
	s := l.scopes[key]
	if s == nil {
		s = &scope{
			resource:  strings.Clone(resource),
			isJoined:  l.isJoined,
			edges:     l.edges,
			keepsLate: l.keepsLate,
		}
		l.scopes[key.clone()] = s
	}
	return s
}

// noteStream notes an event about the stream of a scope. It returns the gap that the event
// announces or shows, nil if there is none.
func (l *logFold) noteStream(m Moment, e *consume.Event, isIncluded bool) *consume.Event {
	isNews := l.stream.Apply(e).News
	l.noteWriter(e, isNews)
	if !isNews {
		return nil
	}
	key := scopeOf(e)
	s := l.scope(key, e.GroupResource())
	announced := s.noteEvent(m, e)
	if s.isRestarted && !l.restarted[key] {
		l.restarted[key.clone()] = true
	}
	l.noteRestartSnapshot(e)
	l.noteDeadLetter(e, isIncluded)
	return announced
}

// noteRestartSnapshot notes a snapshot of a scope that was restarted after the moment. At a
// resourceVersion, it may read objects that did not change since, and that no agent observed at
// the moment.
func (l *logFold) noteRestartSnapshot(e *consume.Event) {
	if e.Type != consume.TypeSnapshotStarted || !l.isRestarted(scopeOf(e)) {
		return
	}
	l.restartSnapshots[snapshotKey{e.ClusterKey(), e.Stream.Snapshot}.clone()] = true
}

// isRestarted reports whether a scope was restarted after the moment. A part of a scope is
// restarted with it.
func (l *logFold) isRestarted(key scopeKey) bool {
	if l.restarted[key] {
		return true
	}
	if !strings.Contains(key.name, "/") {
		return false
	}
	for of := range l.restarted {
		if of.cluster == key.cluster && consume.IsPartOf(key.name, of.name) {
			return true
		}
	}
	return false
}

// isOfRestart reports whether an event is a read of a snapshot of a restarted scope.
func (l *logFold) isOfRestart(e *consume.Event) bool {
	return e.Op == consume.Read && e.Data != nil && l.restartSnapshots[snapshotKey{e.ClusterKey(), e.Data.Snapshot}]
}

// noteFormerProgress notes a progress event as agents of former releases sent it.
func (l *logFold) noteFormerProgress(e *consume.Event) {
	l.scope(scopeOf(e), e.GroupResource()).noteFormerProgress(mark{e.Time, pointOf(e)})
}

// judgedScopes returns the keys of the scopes that have a certainty of their own.
func (l *logFold) judgedScopes() []scopeKey {
	var out []scopeKey
	for key, s := range l.scopes {
		if l.isJudged(key, s) {
			out = append(out, key)
		}
	}
	return out
}

// isJudged reports whether a scope has a certainty of its own: it is that of an informer, or
// nothing else is known. A part of a scope, with a snapshot of its own, has none.
func (l *logFold) isJudged(key scopeKey, s *scope) bool { return s.hasInformer || !l.isPart(key) }

// isPart reports whether a scope is a part of another one.
func (l *logFold) isPart(part scopeKey) bool {
	if !strings.Contains(part.name, "/") {
		return false
	}
	for key := range l.scopes {
		if key.cluster == part.cluster && consume.IsPartOf(part.name, key.name) {
			return true
		}
	}
	return false
}

// has reports whether the last known version of an object is that of an event.
func (l *logFold) has(e *consume.Event) bool {
	known := l.highest(objectOf(e))
	return known.seq > 0 && known == pointOf(e)
}

// highest returns the highest resourceVersion of an object up to the moment.
func (l *logFold) highest(key objectKey) point {
	history, seq := l.objects.Highest(key.cluster, key.resource, key.uid)
	return point{history, seq}
}

// noteSkipped notes, from an event after the moment, how many versions were withheld before it.
// Only the first such event of an object counts: the others say what was withheld after the moment.
func (l *logFold) noteSkipped(e *consume.Event) {
	key := objectOf(e)
	if e.Data == nil || l.hasChanged[key] || !l.objects.Has(key.cluster, key.resource, key.uid) {
		return
	}
	known := l.highest(key)
	if known == (point{}) || !known.isBefore(pointOf(e)) {
		return // resourceVersions are not numbers, or the event is a late copy
	}
	l.hasChanged[key.clone()] = true
	l.noteWithheld(placeOf(e), e.Data.Skipped)
}

// noteWithheld notes a place of objects, and how many versions filters withheld there.
func (l *logFold) noteWithheld(at place, versions int) {
	withheld := l.places[at]
	if withheld == nil {
		withheld = new(int)
		l.places[at.clone()] = withheld
	}
	*withheld += versions
}

func sortedKeys[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }
