package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Auditor takes the events of a record, from before the span to its end, and keeps what a report
// needs. It keeps no event and no object.
type Auditor struct {
	Since, Until time.Time
	// Matches reports whether an object is one that is asked for, by its labels. nil: all are.
	Matches func(object json.RawMessage) bool

	objects   map[objectKey]*known
	changes   map[string]*changes // by resource
	lost      []Finding           // of versions whose object is not in the record
	doubts    []Finding           // they count unless another finding says why
	rules     map[scopeKey]string
	remarks   []Remark
	evidence  Evidence
	runs      map[writer]map[string]bool
	agents    map[writer]Agent
	truncated map[string]int // versions without another member, by resource
}

// objectKey identifies an object, as in package timeline.
type objectKey struct {
	cluster       consume.ClusterKey
	resource, uid string
}

type scopeKey struct {
	cluster consume.ClusterKey
	name    string
}

type writer struct {
	cluster consume.ClusterKey
	name    string
}

// known is what the record has said of an object so far.
type known struct {
	name     string // as certainty.ObjectName
	rv       string
	at       time.Time
	matches  bool
	lost     bool // the last version is in the record without the object
	changed  bool // in the span
	redacted bool
}

// changes counts what was changed in the span.
type changes struct{ versions, created, deleted, objects, inferred, redacted, deadDeletions int }

// New returns the Auditor of a span.
func New(since, until time.Time) *Auditor {
	return &Auditor{
		Since:     since,
		Until:     until,
		objects:   map[objectKey]*known{},
		changes:   map[string]*changes{},
		rules:     map[scopeKey]string{},
		runs:      map[writer]map[string]bool{},
		agents:    map[writer]Agent{},
		truncated: map[string]int{},
	}
}

// TakeEvent takes the next event, with the versions that it shows.
func (a *Auditor) TakeEvent(e *consume.Event, versions []*timeline.Version) {
	in := a.includes(e.Time)
	a.noteLog(e.Position.Log.Name)
	a.evidence.ReadUpTo = latest(a.evidence.ReadUpTo, e)
	if in {
		a.noteRecord(e)
	}
	switch {
	case e.Progress != nil:
		a.noteProgress(e, in)
	case e.Stream != nil && len(e.Stream.Rules) > 0:
		a.noteRules(e, in)
	}
	for _, v := range versions {
		a.takeVersion(v, e)
	}
}

func (a *Auditor) includes(t time.Time) bool { return t.After(a.Since) && !t.After(a.Until) }

func (a *Auditor) noteLog(name string) {
	if name != "" && !slices.Contains(a.evidence.Logs, name) {
		a.evidence.Logs = append(a.evidence.Logs, strings.Clone(name))
	}
}

// noteRecord notes an event of the span.
func (a *Auditor) noteRecord(e *consume.Event) {
	a.evidence.Records++
	if a.evidence.First == nil || e.Time.Before(a.evidence.First.Time) {
		a.evidence.First = &Event{e.Time, strings.Clone(e.ID)}
	}
	a.evidence.Last = latest(a.evidence.Last, e)
}

// latest returns the later of an event that is known, nil if there is none, and another one.
func latest(known *Event, e *consume.Event) *Event {
	if known != nil && e.Time.Before(known.Time) {
		return known
	}
	return &Event{e.Time, strings.Clone(e.ID)}
}

func (a *Auditor) noteProgress(e *consume.Event, in bool) {
	p := e.Progress
	if v := p.APIServerVersion; v != "" && !slices.Contains(a.evidence.APIServers, v) && !e.Time.After(a.Until) {
		a.evidence.APIServers = append(a.evidence.APIServers, strings.Clone(v))
	}
	of := writer{e.ClusterKey(), p.Writer}
	if !in || a.runs[of][p.Run] {
		return
	}
	of = writer{consume.ClusterKey{
		Source: strings.Clone(e.Source),
		UID:    strings.Clone(e.ClusterUID),
	}, strings.Clone(p.Writer)}
	if a.runs[of] == nil {
		a.runs[of] = map[string]bool{}
	}
	a.runs[of][strings.Clone(p.Run)] = true
	a.agents[of] = Agent{of.name, strings.Clone(p.Checkpoint), strings.Clone(p.Node), len(a.runs[of])}
}

// noteRules notes the rules of a scope, and whether they have changed in the span.
func (a *Auditor) noteRules(e *consume.Event, in bool) {
	key := scopeKey{e.ClusterKey(), e.Scope}
	text, err := json.Marshal(e.Stream.Rules)
	if err != nil {
		return // impossible: it came from JSON
	}
	before, isKnown := a.rules[key]
	if isKnown && before == string(text) {
		return
	}
	key = scopeKey{consume.ClusterKey{
		Source: strings.Clone(e.Source),
		UID:    strings.Clone(e.ClusterUID),
	}, strings.Clone(e.Scope)}
	a.rules[key] = string(text)
	if in && isKnown {
		a.remarks = append(a.remarks, Remark{
			Kind:     "rules-changed",
			Resource: strings.Clone(e.GroupResource()),
			Scope:    key.name,
			What: fmt.Sprintf("the rules changed at %s from %s to %s", e.Time.Local().Format(time.RFC3339), before,
				text),
		})
	}
}

// takeVersion takes a version of an object.
func (a *Auditor) takeVersion(v *timeline.Version, e *consume.Event) {
	key := objectKey{v.ClusterKey(), v.Resource, v.UID}
	was := a.objects[key]
	matches := a.Matches == nil || v.After != nil && a.Matches(v.After) || v.After == nil && was != nil && was.matches
	isAsked := matches || was != nil && was.matches
	in := a.includes(v.Time)
	if was == nil {
		key.cluster = consume.ClusterKey{Source: strings.Clone(v.Source), UID: strings.Clone(v.ClusterUID)}
		key.resource, key.uid = strings.Clone(v.Resource), strings.Clone(v.UID)
	}
	of := a.changesOf(key.resource)
	isChange := false
	if isAsked && in {
		a.noteDoubt(v, was, e)
		isChange = a.countChange(of, v, was)
	}
	a.endLoss(key, was, v.Time)
	if v.Gone() && v.Op != consume.Left {
		delete(a.objects, key)
		return
	}
	is := &known{
		rv:      strings.Clone(v.ResourceVersion),
		at:      v.Time,
		matches: matches,
		changed: isChange || was != nil && was.changed,
	}
	is.redacted = was != nil && was.redacted
	if was != nil {
		is.name = was.name
	} else {
		is.name = strings.Clone(certainty.ObjectName(v.Resource, v.Namespace, v.Name))
	}
	if isAsked && !v.Time.After(a.Until) && !is.redacted && v.Redacted() {
		is.redacted = true
		of.redacted++
	}
	is.lost = isAsked && v.After == nil && !v.Gone()
	if rest := v.Truncated; isAsked && in && len(rest) > 0 && !is.lost {
		a.truncated[key.resource]++
	}
	a.objects[key] = is
}

func (a *Auditor) changesOf(resource string) *changes {
	of := a.changes[resource]
	if of == nil {
		of = &changes{}
		a.changes[resource] = of
	}
	return of
}

// countChange counts a version of the span, and reports whether it is a change. A snapshot that
// reads what is known already shows none.
func (a *Auditor) countChange(of *changes, v *timeline.Version, was *known) bool {
	if v.Op == consume.Read && (was == nil || was.rv == v.ResourceVersion) {
		return false
	}
	of.versions++
	switch v.Op {
	case consume.Created:
		of.created++
	case consume.Deleted:
		of.deleted++
	case consume.Updated, consume.Read, consume.Entered, consume.Left: // an object that left still exists
	}
	if was == nil || !was.changed {
		of.objects++
	}
	if v.Inferred {
		of.inferred++
	}
	return true
}

// noteDoubt notes what a version shows to be missing.
func (a *Auditor) noteDoubt(v *timeline.Version, was *known, e *consume.Event) {
	f := Finding{Since: a.Since, Until: v.Time.Add(-1), Resource: strings.Clone(v.Resource)}
	if was != nil {
		f.Since = earlier(later(was.at, a.Since), f.Until)
	}
	f.Objects = []string{strings.Clone(certainty.ObjectName(v.Resource, v.Namespace, v.Name))}
	if v.Skipped > 0 {
		f.Kind, f.Records = certainty.Filtered, v.Skipped
		a.doubts = append(a.doubts, f)
		return
	}
	if v.ID == "" && e.Stream != nil && e.Stream.DeadLetter != "" {
		a.changesOf(f.Resource).deadDeletions++
		return
	}
	f.detail = contradiction(v, was)
	if f.detail != "" {
		f.Kind = certainty.Contradicted
		a.doubts = append(a.doubts, f)
	}
}

// contradiction returns how a version differs from what follows from the object's previous one; "":
// it does not.
func contradiction(v *timeline.Version, was *known) string {
	previous := v.PreviousResourceVersion
	switch {
	case v.ID == "":
		return "an object is gone, and no event says that it was deleted"
	case v.Op == consume.Entered:
		return "" // its versions outside of the selection are in no record
	case was == nil:
		if v.Op == consume.Updated || v.Op == consume.Deleted || v.Op == consume.Left {
			return "nothing precedes the first change of an object"
		}
		return ""
	case v.Op == consume.Read && !v.Again && v.ResourceVersion != was.rv:
		return fmt.Sprintf("a snapshot has resourceVersion %s, which no event shows", v.ResourceVersion)
	case v.Op != consume.Read && previous != "" && previous != was.rv:
		return fmt.Sprintf("resourceVersion %s, which was changed to %s", previous, v.ResourceVersion)
	}
	return ""
}

// endLoss ends the span in which the last version of an object is in the record without the object.
func (a *Auditor) endLoss(key objectKey, was *known, at time.Time) {
	if was == nil || !was.lost {
		return
	}
	f := Finding{
		Since:    was.at,
		Until:    at.Add(-1),
		Resource: key.resource,
		Objects:  []string{was.name},
	}
	f.Kind = certainty.Truncated
	f.Since, f.Until = later(f.Since, a.Since), earlier(f.Until, a.Until)
	if !f.Until.Before(f.Since) {
		a.lost = append(a.lost, f)
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
