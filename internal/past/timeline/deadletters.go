package timeline

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// deadLetter is an event that a gap names, because the bus rejected it. The state lacks it until
// the log has the event after all, or a later one of the same object. The gap is in all logs of a
// topic, the events of the object are in one.
type deadLetter struct {
	scope    scopeKey
	object   objectKey
	at       point
	from, to certainty.Bound
	// isResolved: the log has the event, or a later one of its object.
	isResolved bool
}

// noteDeadLetter notes the dead letter that a gap names.
func (l *logFold) noteDeadLetter(e *consume.Event, isIncluded bool) {
	key := deadLetterKey{e.ClusterKey(), e.Stream.DeadLetter}
	if key.id == "" || !isIncluded || l.deadLetters[key] != nil {
		return
	}
	uid, version := splitDeadLetter(key.id)
	if version == "d" || strings.HasPrefix(version, "d/") {
		return // a deletion: the gap says everything that its event would say
	}
	l.edges.noteTimes(e.Time)
	key = key.clone()
	object := objectKey{key.cluster, strings.Clone(e.GroupResource()), strings.Clone(uid)}
	l.deadLetters[key] = &deadLetter{
		scope:  scopeKey{key.cluster, strings.Clone(e.Scope)},
		object: object,
		at:     pointOf(e),
		from: certainty.Bound{
			Time:            e.Stream.Since,
			ResourceVersion: strings.Clone(e.Stream.FromResourceVersion),
			History:         e.History(),
		},
		to: certainty.Bound{
			Time:            e.Time,
			ResourceVersion: strings.Clone(e.Stream.ToResourceVersion),
			History:         e.History(),
		},
		isResolved: !l.highest(object).isBefore(pointOf(e)), // the bus rejected a copy
	}
}

// splitDeadLetter returns the uid of the object and the version that the id of an event has.
func splitDeadLetter(id string) (uid, version string) {
	_, rest, _ := strings.Cut(id, "/")
	uid, version, _ = strings.Cut(rest, "/")
	return uid, version
}

// resolveDeadLetters notes that the log has a version, which may be a dead letter or a later one.
//
// A later snapshot may read the version in another form than it had at the moment. Then the state
// lacks that form. If the moment is a span, the states before the version lack the dead letter.
func (l *logFold) resolveDeadLetters(v *Version, m Moment) {
	for _, d := range l.deadLetters {
		if d.object != v.key() {
			continue
		}
		s := l.scopes[d.scope]
		isOtherForm := v.Op == consume.Read && s != nil && s.changesForm
		isOlder := (point{v.History, number(v.ResourceVersion)}).isBefore(d.at)
		if !isOtherForm && !isOlder {
			l.edges.noteTimes(v.Time)
			d.isResolved = d.isResolved || m.kind != atTime || !v.Time.After(m.begin())
		}
	}
}

// judgeDeadLetters lowers the certainty of the scopes whose state lacks a dead letter.
func (f *Fold) judgeDeadLetters(all map[scopeKey]certainty.Scope) {
	missing := map[deadLetterKey]*deadLetter{}
	for _, l := range f.logs {
		maps.Copy(missing, l.deadLetters)
	}
	for _, l := range f.logs {
		maps.DeleteFunc(missing, func(key deadLetterKey, _ *deadLetter) bool {
			return l.deadLetters[key] != nil && l.deadLetters[key].isResolved
		})
	}
	byID := func(a, b deadLetterKey) int { return strings.Compare(a.id, b.id) }
	for _, key := range slices.SortedFunc(maps.Keys(missing), byID) {
		d := missing[key]
		s, ok := all[d.scope]
		if !ok {
			continue
		}
		if s.Find(certainty.DeadLetter) == nil {
			s.Lower(certainty.Cause{Kind: certainty.DeadLetter, From: d.from, To: d.to})
		}
		d.addTo(s.Find(certainty.DeadLetter), key.id)
		all[d.scope] = s
	}
}

// addTo adds the dead letter to the cause of its scope.
func (d *deadLetter) addTo(c *certainty.Cause, id string) {
	c.DeadLetters = append(c.DeadLetters, id)
	if d.from.Time.Before(c.From.Time) {
		c.From = d.from
	}
	if d.to.Time.After(c.To.Time) {
		c.To = d.to
	}
}
