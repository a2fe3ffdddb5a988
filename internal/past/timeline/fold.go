package timeline

import (
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Options of a Fold or a State.
type Options struct {
	// Etcd says whether the resourceVersions of a resource ("events", "widgets.example.com") of a
	// cluster are of the etcd that the moment is of. An aggregated API has its own, and so may
	// Events. The answer at a resourceVersion is Unknown unless it is SameEtcd. nil: all are.
	Etcd func(cluster consume.ClusterKey, resource string) Etcd
	// Asked reports whether an answer needs a scope of a resource, if only its progress is known.
	// nil: it needs all.
	Asked func(resource, scope string) bool
	// Joined: the events begin in the middle of the record. A progress event follows the first
	// snapshot of its scope. So the first one shows that the scope has had a snapshot, although
	// that was not read.
	Joined bool
	// Late keeps what Fold.Late returns.
	Late bool
}

// Fold turns the events of a record into the versions of objects up to a moment.
//
// In a log, a consume.Tracker decides about copies, late events and sweeps. A Fold adds what one
// log does not show: an object that moved to another log, how certain the state is at the moment
// (Scopes), and whether reading on changes anything (Done).
type Fold struct {
	moment   Moment
	opts     Options
	logs     map[consume.Log]*logFold
	left     map[consume.Object]leftObject // by name: without the uid
	redacted map[objectKey]place           // objects that are redacted
	gone     map[objectKey]bool            // objects that have ended in one log, and that another one still has
	gap      *consume.Event                // see Gap
	done     *bool                         // the last answer of Done; nil: an event about scopes came since
	edges    *edges                        // nil: the moment is no span
	// returnedLate says up to where Late has returned the spans of a scope.
	returnedLate map[scopeKey]time.Time
	server       serverVersion
}

// leftObject is an object that left the selection and did not come back.
type leftObject struct {
	uid   string
	place place
}

// NewFold returns a Fold up to a moment.
func NewFold(m Moment, o Options) *Fold {
	f := &Fold{
		moment:       m,
		opts:         o,
		logs:         map[consume.Log]*logFold{},
		left:         map[consume.Object]leftObject{},
		redacted:     map[objectKey]place{},
		gone:         map[objectKey]bool{},
		returnedLate: map[scopeKey]time.Time{},
	}
	if !m.since.IsZero() {
		f.edges = newEdges(m.since, m.time)
	}
	return f
}

// Add applies the next event of a log and returns the versions that it adds up to the moment. The
// objects that it shows to be gone come first. Its own version follows, if that is news. The
// versions share the memory of e.
func (f *Fold) Add(e *consume.Event) []*Version {
	f.gap = nil
	if e.DeadLetterReason != "" {
		return nil // not a part of the stream
	}
	l := f.logOf(e.Position.Log)
	isIncluded := f.moment.Includes(e) && !l.isOfRestart(e)
	switch {
	case e.Progress != nil:
		f.done = nil
		f.server.noteProgress(e, isIncluded)
		l.noteProgress(f.moment, e, f.opts)
		return nil
	case e.IsFormerProgress():
		f.done = nil
		l.noteFormerProgress(e)
		return nil
	case e.Stream != nil:
		f.done = nil
		if announced := l.noteStream(f.moment, e, isIncluded); isIncluded {
			f.gap = announced
		}
	}
	if !isIncluded {
		l.objects.Touch(e)
		l.noteSkipped(e)
		return nil
	}
	isAgain := e.Op == consume.Read && l.has(e)
	verdict := l.objects.Apply(e)
	out := f.versionsOfGone(l, e, verdict.Gone)
	if verdict.News && e.Data != nil {
		l.noteWithheld(placeOf(e), e.Data.Skipped)
		v := versionOf(e)
		v.Again = isAgain
		out = append(out, v)
	}
	for _, v := range out {
		l.resolveDeadLetters(v, f.moment)
		f.noteLeft(v)
		f.noteRedacted(v)
		f.noteGone(l, v)
	}
	return out
}

// noteLeft notes whether the object of a version has left the selection. As in a State, a name
// belongs to one object that has left. An older one may still have it: its end is not in the
// record.
func (f *Fold) noteLeft(v *Version) {
	name := nameOf(v)
	switch {
	case v.Op == consume.Left:
		name.Source = strings.Clone(name.Source)
		name.ClusterUID = strings.Clone(name.ClusterUID)
		name.Resource = strings.Clone(name.Resource)
		name.Namespace, name.Name = strings.Clone(name.Namespace), strings.Clone(name.Name)
		f.left[name] = leftObject{strings.Clone(v.UID), place{
			name.ClusterKey(), name.Resource, strings.Clone(v.Scope), name.Namespace,
		}}
	case !v.Gone() || f.left[name].uid == v.UID:
		delete(f.left, name)
	}
}

// noteRedacted notes whether the object of a version is redacted.
func (f *Fold) noteRedacted(v *Version) {
	key := v.key()
	if !v.Redacted() {
		delete(f.redacted, key)
		return
	}
	at := place{key.cluster, key.resource, v.Scope, v.Namespace}
	if f.redacted[key] == at {
		return
	}
	key = key.clone()
	f.redacted[key] = place{key.cluster, key.resource, strings.Clone(v.Scope), strings.Clone(v.Namespace)}
}

// Gap returns the gap up to the moment that the last added event announces or shows, nil if there
// is none. A snapshot shows a gap if it begins a scope again, because the agent lost its position
// or etcd was restored.
func (f *Fold) Gap() *consume.Event { return f.gap }

// NoteLog notes a log, even if none of its events is added. Each partition of a topic has all
// events about its scopes.
func (f *Fold) NoteLog(log consume.Log) { f.logOf(log) }

// DropLog drops a log that was created after the moment, and so has nothing about the moment.
func (f *Fold) DropLog(log consume.Log) { delete(f.logs, log) }

// Unnamed reports whether a writer's last progress is about more scopes of a resource than the log
// has starts of. The missing ones are before the events that were added.
func (f *Fold) Unnamed() bool {
	for _, l := range f.logs {
		if len(l.unnamed) > 0 {
			return true
		}
	}
	return false
}
