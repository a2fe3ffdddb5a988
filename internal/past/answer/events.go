package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// lateAfter is how far the time of an Event may be from the time at which it was observed, before
// both are shown. The times of most Events are whole seconds.
const lateAfter = 2 * time.Second

// maxUnplaced is how many Events about unknown objects are distinguished.
const maxUnplaced = 10_000

// happenings are the Kubernetes Events of a history: those about the objects of the question, and
// about what these own.
//
// An Event that happens again is updated. Each update that counts further, or says something else,
// is shown, and no other one. The API server deletes Events after an hour, which is not shown. Both
// API groups serve the same Events: a version that was seen in one group is not shown for the
// other.
type happenings struct {
	ownership *ownership // nil: all Events are asked for
	read      time.Time  // when the reading of the owners began

	last     map[uidKey]*seenEvent // by the uid of the Event
	shown    int
	gaps     []*consume.Event
	partly   map[consume.ClusterKey]bool // Events left the selection
	unplaced map[uidKey]string           // what the Events are about
	uncount  int                         // further ones
}

// seenEvent is what was shown of an Event.
type seenEvent struct {
	version string
	point   timeline.Moment
	count   int
	text    string
}

// Happening is the JSON form of an Event.
type Happening struct {
	Time            time.Time  `json:"time"`
	Op              consume.Op `json:"op"`
	Cluster         string     `json:"cluster,omitempty"`
	ClusterUID      string     `json:"clusterUID,omitempty"`
	Namespace       string     `json:"namespace"`
	Name            string     `json:"name"`
	UID             string     `json:"uid"`
	ResourceVersion string     `json:"resourceVersion,omitempty"`
	History         uint32     `json:"history,omitempty"`
	Event           string     `json:"event,omitempty"` // the ID of the record
	Skipped         int        `json:"skipped,omitempty"`

	Type      string    `json:"type,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	By        string    `json:"by,omitempty"`
	Count     int       `json:"count"`
	First     time.Time `json:"first,omitzero"`
	Last      time.Time `json:"last,omitzero"`
	Regarding Regarded  `json:"regarding"`
}

// Regarded is the JSON form of the object that an Event is about.
type Regarded struct {
	Resource   string `json:"resource,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
	FieldPath  string `json:"fieldPath,omitempty"`
}

// eventObject is an Event as either API group has it.
type eventObject struct {
	Metadata struct {
		CreationTimestamp time.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Type           string    `json:"type"`
	Reason         string    `json:"reason"`
	EventTime      time.Time `json:"eventTime"`
	InvolvedObject reference `json:"involvedObject"`
	Regarding      reference `json:"regarding"`
	Message        string    `json:"message"`
	Note           string    `json:"note"`

	Source struct {
		Component string `json:"component"`
	} `json:"source"`
	DeprecatedSource struct {
		Component string `json:"component"`
	} `json:"deprecatedSource"`
	ReportingComponent  string `json:"reportingComponent"`
	ReportingController string `json:"reportingController"`

	Count                    int       `json:"count"`
	DeprecatedCount          int       `json:"deprecatedCount"`
	FirstTimestamp           time.Time `json:"firstTimestamp"`
	LastTimestamp            time.Time `json:"lastTimestamp"`
	DeprecatedFirstTimestamp time.Time `json:"deprecatedFirstTimestamp"`
	DeprecatedLastTimestamp  time.Time `json:"deprecatedLastTimestamp"`
	Series                   struct {
		Count            int       `json:"count"`
		LastObservedTime time.Time `json:"lastObservedTime"`
	} `json:"series"`
}

// eventResources are the resources that have the Events of Kubernetes.
func eventResources() []record.Resource {
	return []record.Resource{{Plural: "events", Word: "events"}, {
		Group:  "events.k8s.io",
		Plural: "events",
		Word:   "events",
	}}
}

// isOfEvents reports whether a resource ("pods", "deployments.apps") has the Events of Kubernetes.
func isOfEvents(resource string) bool {
	return slices.ContainsFunc(eventResources(), func(r record.Resource) bool { return r.String() == resource })
}

// CanShowEvents returns an error if the question asks for Events itself.
func (q *Question) CanShowEvents() error {
	if slices.ContainsFunc(q.Wanted.Resources, func(r record.Resource) bool { return isOfEvents(r.String()) }) {
		return UsageError{
			fmt.Errorf("--with-events shows Events beside other objects: leave out events, or the flag"),
		}
	}
	return nil
}

// PlanEvents reads what is needed to select the Events of the history.
func (r *SpanReader) PlanEvents(ctx context.Context) (err error) {
	r.events, r.asked, err = r.q.planEvents(ctx, r.Span)
	return err
}

// planEvents also returns the objects of the question and the Events.
func (q *Question) planEvents(ctx context.Context, s *Span) (*happenings, *record.Selection, error) {
	h := &happenings{
		read:     time.Now(),
		last:     map[uidKey]*seenEvent{},
		partly:   map[consume.ClusterKey]bool{},
		unplaced: map[uidKey]string{},
	}
	if q.Wanted.Resources == nil && q.Wanted.Selector == nil {
		return h, q.Wanted, nil
	}
	var namespaces []string
	var err error
	h.ownership, namespaces, err = q.owners(ctx, s)
	if err != nil || q.Wanted.Resources == nil {
		return h, q.Wanted, err
	}
	events := eventResources()
	for i := range events {
		events[i].Namespaces = namespaces
	}
	return h, q.Wanted.With(events...), nil
}

// takeEvent shows a version of an Event, if it says something new about the objects of the
// question.
func (r *SpanReader) takeEvent(v *timeline.Version, e *consume.Event, in bool) error {
	if v.Gone() {
		if in && v.Op == consume.Left {
			r.events.partly[v.ClusterKey()] = true
		}
		return nil
	}
	k := happeningOf(v, e)
	if k == nil {
		r.events.noteUnplaced(v, e, in, "")
		return nil
	}
	if r.events.ownership != nil {
		about := reference{
			APIVersion: k.Regarding.APIVersion,
			Kind:       k.Regarding.Kind,
			Namespace:  k.Regarding.Namespace,
			Name:       k.Regarding.Name,
			UID:        k.Regarding.UID,
		}
		object, where := r.events.ownership.place(v.ClusterKey(), &about, e.Time)
		if where == unplaced {
			r.events.noteUnplaced(v, e, in,
				certainty.ObjectName(k.Regarding.Resource, k.Regarding.Namespace, k.Regarding.Name))
		}
		if where != owned {
			return nil
		}
		k.Regarding.Resource, k.Regarding.Namespace = object.resource, object.namespace
		k.Regarding.Name, k.Regarding.UID = object.name, object.uid
	}
	// On Kafka, a snapshot in the span may be the first that is read of an Event.
	isBefore := k.Op == consume.Read && r.Since != nil && k.Last.Before(r.Since.Time())
	if !r.events.isNews(v, k) || !in || isBefore {
		return nil
	}
	r.noteCluster(e)
	r.events.shown++
	return r.shower.ShowHappening(v, e, k)
}

// noteUnplaced notes an Event that may be about an object of the question. One that came after the
// owners were read is not counted: no answer is certain about such a time yet.
func (h *happenings) noteUnplaced(v *timeline.Version, e *consume.Event, in bool, about string) {
	key := uidKey{v.ClusterKey(), v.UID}
	switch {
	case !in || e.Time.After(h.read):
	case len(h.unplaced) >= maxUnplaced && h.unplaced[key] == "":
		h.uncount++
	default:
		h.unplaced[uidKey{key.cluster, strings.Clone(key.uid)}] = cmp.Or(about, "events "+v.Namespace+"/"+v.Name)
	}
}

// isNews reports whether a version of an Event says more than those before it.
func (h *happenings) isNews(v *timeline.Version, k *Happening) bool {
	key := uidKey{v.ClusterKey(), v.UID}
	last := h.last[key]
	text := k.Type + " " + k.Reason + " " + k.Message
	if last == nil {
		h.last[uidKey{key.cluster, strings.Clone(key.uid)}] = &seenEvent{
			strings.Clone(v.ResourceVersion), v.Point(), k.Count, text,
		}
		return true
	}
	if v.ResourceVersion == last.version || last.point.After(v.Point()) {
		return false
	}
	isNews := k.Count > last.count || text != last.text
	*last = seenEvent{strings.Clone(v.ResourceVersion), v.Point(), max(k.Count, last.count), text}
	return isNews
}

// happeningOf reads a version of an Event, nil if it has no content.
func happeningOf(v *timeline.Version, e *consume.Event) *Happening {
	var o eventObject
	if v.After == nil || json.Unmarshal(v.After, &o) != nil {
		return nil
	}
	about := o.InvolvedObject
	if about == (reference{}) {
		about = o.Regarding
	}
	k := &Happening{
		Time:            e.Time,
		Op:              v.Op,
		Cluster:         strings.Clone(v.Cluster),
		ClusterUID:      strings.Clone(v.ClusterUID),
		Namespace:       strings.Clone(v.Namespace),
		Name:            strings.Clone(v.Name),
		UID:             strings.Clone(v.UID),
		ResourceVersion: strings.Clone(v.ResourceVersion),
		History:         v.History,
		Event:           strings.Clone(v.ID),
		Skipped:         v.Skipped,

		Type:    o.Type,
		Reason:  o.Reason,
		Message: cmp.Or(o.Message, o.Note),
		By:      cmp.Or(o.ReportingComponent, o.ReportingController, o.Source.Component, o.DeprecatedSource.Component),
		Count:   max(o.Series.Count, o.Count, o.DeprecatedCount, 1),
		First:   earliest(o.FirstTimestamp, o.DeprecatedFirstTimestamp, o.EventTime),
		Last:    latest(o.Series.LastObservedTime, o.LastTimestamp, o.DeprecatedLastTimestamp, o.EventTime),
		Regarding: Regarded{
			Resource:   resourceOf(&about),
			APIVersion: about.APIVersion,
			Kind:       about.Kind,
			Namespace:  about.Namespace,
			Name:       about.Name,
			UID:        about.UID,
			FieldPath:  about.FieldPath,
		},
	}
	if k.Last.IsZero() {
		k.First, k.Last = o.Metadata.CreationTimestamp, o.Metadata.CreationTimestamp
	}
	return k
}

// resourceOf returns the resource of a reference, as far as Kubernetes serves it itself; else its
// kind.
func resourceOf(r *reference) string {
	for _, k := range kinds.Named(r.Kind) {
		if r.APIVersion == "" || k.Group == r.group() {
			return k.String()
		}
	}
	return strings.ToLower(r.Kind)
}

// earliest returns the first of the times that are not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// IsLate reports whether an Event was not observed when it happened.
func (h *Happening) IsLate() bool {
	return h.Op == consume.Read || h.Time.Sub(h.Last).Abs() >= lateAfter
}

// assessEvents judges the Events of the whole span. If some may be missing, the answer is not
// exact, and gets the causes.
func (r *SpanReader) assessEvents(a *Assessment) {
	isCaptured := false
	for i := range a.Scopes {
		s := &a.Scopes[i]
		if !isOfEvents(s.Resource) {
			continue
		}
		isCaptured = true
		for _, c := range r.events.causes(s) {
			s.Lower(c)
		}
		a.Certainty = max(a.Certainty, s.Certainty)
	}
	if !isCaptured {
		none := certainty.Scope{Resource: "events", Name: "events"}
		none.Lower(certainty.Cause{Kind: certainty.NoSnapshot})
		a.AddScope(none)
	}
}

// causes returns why a scope may lack Events of the span.
func (h *happenings) causes(s *certainty.Scope) (causes []certainty.Cause) {
	for _, e := range h.gaps {
		if e.ClusterKey() != s.ClusterKey() || e.Scope != s.Name {
			continue
		}
		kind := certainty.Gap
		if e.Stream.Recovered {
			kind = certainty.RecoveredGap
		}
		isKnown := slices.ContainsFunc(s.Causes, func(c certainty.Cause) bool {
			return c.Kind == kind && c.To.ResourceVersion == e.Stream.ToResourceVersion
		})
		if !isKnown {
			causes = append(causes, certainty.Cause{
				Kind:   kind,
				Reason: e.Stream.Reason,
				From:   certainty.Bound{Time: e.Stream.Since, ResourceVersion: e.Stream.FromResourceVersion},
				To:     certainty.Bound{Time: e.Time, ResourceVersion: e.Stream.ToResourceVersion},
			})
		}
	}
	if strings.Contains(s.Name, "?") || h.partly[s.ClusterKey()] {
		causes = append(causes, certainty.Cause{Kind: certainty.Selected})
	}
	if s.Skipped > 0 {
		causes = append(causes, certainty.Cause{Kind: certainty.Withheld, Records: s.Skipped})
	}
	unplacedEvents := h.uncount
	for key := range h.unplaced {
		if key.cluster == s.ClusterKey() {
			unplacedEvents++
		}
	}
	if unplacedEvents > 0 {
		causes = append(causes, certainty.Cause{Kind: certainty.Unplaced, Records: unplacedEvents})
	}
	if s.Ended != nil && (s.Ended.Reason == consume.EndDeselected || s.Ended.Reason == consume.EndForgotten) {
		causes = append(causes, certainty.Cause{Kind: certainty.CapturedUntil, From: s.Ended.Bound})
	}
	return causes
}

// EventsWords says, a line each, why there are no Events, and about which objects there may be
// others.
func (r *SpanReader) EventsWords() []string {
	if r.events == nil {
		return nil
	}
	isCaptured := slices.ContainsFunc(r.Sure.Scopes, func(s certainty.Scope) bool {
		return isOfEvents(s.Resource) && s.Find(certainty.NoSnapshot) == nil
	})
	var lines []string
	switch {
	case !isCaptured:
		lines = append(lines,
			"Events were not captured, so none can be shown: by default an agent leaves them out. To capture them, "+
				"add the resource 'events' to its rules (watch).")
	case r.events.shown == 0:
		lines = append(lines, "No Events of these objects, and of what they own, are in this span.")
	}
	if names := slices.Compact(slices.Sorted(maps.Values(r.events.unplaced))); len(names) > 0 {
		if more := len(names) - maxExamples; more > 0 {
			names = append(names[:maxExamples], fmt.Sprintf("%d more", more))
		}
		lines = append(lines, "Events about objects that the record does not have: "+strings.Join(names, ", "))
	}
	return lines
}
