package answer

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Span selects the versions of a History.
type Span struct {
	Since *timeline.Moment // nil for the beginning of the record
	Until timeline.Moment
	// Events shows the Kubernetes Events about the objects, and about what they own.
	Events bool
	Filters
}

// Shower takes what a History finds, in the order of the record. An error ends the reading. It may
// ask the History, and changes nothing that it gets.
type Shower interface {
	// ShowVersion takes a version that e has brought, and the objects before and after it: with
	// Filters.Field, these have nothing else.
	ShowVersion(v *timeline.Version, e *consume.Event, before, after json.RawMessage) error
	// ShowGap takes a gap.
	ShowGap(e *consume.Event) error
	// ShowLate takes a late span of several scopes.
	ShowLate(g *LateGroup) error
	// ShowHappening takes a version of a Kubernetes Event, which e has brought.
	ShowHappening(v *timeline.Version, e *consume.Event, k *Happening) error
}

// History reads the versions of the objects of a question in a span. Its methods are called in this
// order: PlanEvents with Span.Events, then Read. The fields about the whole span are complete
// after Read; a Shower may read them before.
type History struct {
	*Span
	Breaks

	Hidden   Hidden
	Clusters Clusters           // of the versions so far
	First    consume.ClusterKey // the first of them: lines name no cluster as long as there is no other

	Versions, Shown int // all versions, and those shown

	Sure        Assessment
	Begin       *Assessment // at the beginning of the span; nil without one
	LateUnknown bool        // late spans were not looked for

	q      *Question
	shower Shower
	asked  *record.Selection
	last   map[objectKey]json.RawMessage // the object after its last version
	paths  sought                        // that the flags name
	events *happenings                   // nil: they are not asked for
}

// NewHistory returns the history of the objects of the question.
func (q *Question) NewHistory(s *Span) *History {
	if s.Since != nil {
		q.Record.Since = s.Since.Time()
	}
	return &History{
		q:        q,
		Span:     s,
		asked:    q.Wanted,
		last:     map[objectKey]json.RawMessage{},
		Clusters: Clusters{},
		paths:    newSought(&s.Filters),
	}
}

// ReadsAll reports whether the whole record is read, although an index of objects, or the time at
// which the span begins, would spare most of it.
func (h *History) ReadsAll() bool { return h.q.Record.HasSeveralLogs() && h.q.Record.Since.IsZero() }

// Read reads the versions, and hands them to a Shower. It returns an error if the record has none
// of the requested resources.
func (h *History) Read(ctx context.Context, shower Shower) error {
	h.shower = shower
	q := h.q
	var scopes []certainty.Scope
	var reading *record.Reading
	if err := q.During(ctx, func(ctx context.Context) (err error) {
		q.Record.OnLate = h.takeLate
		defer func() { q.Record.OnLate = nil }()
		scopes, reading, err = q.Record.Versions(ctx, h.asked, h.Since, h.Until, h.take)
		return err
	}); err != nil {
		return err
	}
	if h.Versions == 0 && !q.Record.Since.IsZero() {
		if err := h.countEarlier(ctx); err != nil {
			return err
		}
	}
	var err error
	h.Sure, err = h.assess(ctx, scopes, reading)
	if err != nil {
		return err
	}
	h.LateUnknown = reading.LateUnknown
	if h.Since != nil {
		begin := Assess(*h.Since, reading.Begin, &record.Reading{
			Began:      reading.Began,
			Only:       reading.Only,
			Unreadable: reading.Unreadable,
		})
		h.Begin, h.Sure.Since = &begin, &begin.Answer
	}
	return nil
}

// MissingPath returns the error that no version has a value at one of the paths that the flags
// name, nil if all have been found.
func (h *History) MissingPath() error { return h.paths.missing() }

// assess returns how certain the answer is. It returns an error if the record has none of the
// requested resources.
func (h *History) assess(
	ctx context.Context, scopes []certainty.Scope, reading *record.Reading,
) (Assessment, error) {
	sure := Assess(h.Until, scopes, reading)
	if h.events == nil {
		err := h.q.Known(ctx, &sure, h.Versions)
		return sure, err
	}
	isAsked := func(s certainty.Scope) bool { return h.q.Wanted.Resources == nil || h.q.Wanted.Has(s.Resource) }
	others := slices.DeleteFunc(slices.Clone(scopes), func(s certainty.Scope) bool { return !isAsked(s) })
	without := Assess(h.Until, others, reading)
	if err := h.q.Known(ctx, &without, h.Versions); err != nil {
		return sure, err
	}
	for _, missing := range without.Scopes[len(others):] {
		sure.AddScope(missing)
	}
	h.assessEvents(&sure)
	return sure, nil
}

// objectKey identifies an object. Those of two resources, or of two clusters, may have the same
// UID.
type objectKey struct {
	cluster       consume.ClusterKey
	resource, uid string
}

// Gap is the JSON form of a gap.
type Gap struct {
	Time       time.Time       `json:"time"`
	Cluster    string          `json:"cluster,omitempty"`
	ClusterUID string          `json:"clusterUID,omitempty"`
	Scope      string          `json:"scope"`
	Gap        *consume.Stream `json:"gap"`
}

func newGap(e *consume.Event) Gap { return Gap{e.Time, e.Cluster, e.ClusterUID, e.Scope, e.Stream} }

// countEarlier counts the versions before Since, which were perhaps not read.
func (h *History) countEarlier(ctx context.Context) error {
	h.q.Record.Since = time.Time{}
	return h.q.During(ctx, func(ctx context.Context) error {
		_, _, err := h.q.Record.Versions(ctx, h.q.Wanted, nil, h.Until,
			func(v *timeline.Version, _ *consume.Event) error {
				if v != nil {
					h.Versions++
				}
				return nil
			})
		return err
	})
}

// take takes a version or a gap.
func (h *History) take(v *timeline.Version, e *consume.Event) error {
	in := h.Since == nil || !h.Since.Includes(e)
	if v == nil {
		return h.takeGap(e, in)
	}
	if h.events != nil && isOfEvents(v.Resource) {
		return h.takeEvent(v, e, in)
	}
	h.Versions++
	h.meet(e)
	key := objectKey{v.ClusterKey(), v.Resource, v.UID}
	before := v.Before
	if before == nil {
		before = h.last[key]
	}
	if v.Gone() {
		delete(h.last, key)
	} else {
		h.last[key] = v.After
	}
	if !h.q.labelled(before) && !h.q.labelled(v.After) {
		return nil
	}
	h.paths.look(v, before)
	if !in || h.hides(v, before) {
		return nil
	}
	after := v.After
	if h.Field != nil {
		c := h.Field.compare(before, after)
		if !c.isChange {
			h.Hidden.Field++
			return nil
		}
		before, after = c.before, c.after
	}
	h.Shown++
	return h.shower.ShowVersion(v, e, before, after)
}

// meet notes the cluster of an event.
func (h *History) meet(e *consume.Event) {
	if len(h.Clusters) == 0 {
		h.First = e.ClusterKey()
	}
	h.Clusters[e.ClusterKey()] = e.Cluster
}

// ClusterOf returns what the line of an event says of its cluster: nothing if all lines so far are
// of one.
func (h *History) ClusterOf(e *consume.Event) string {
	if len(h.Clusters) < 2 {
		return ""
	}
	return h.Clusters.Label(e.ClusterKey())
}

func (h *History) takeGap(e *consume.Event, in bool) error {
	if !in {
		return nil
	}
	h.meet(e)
	if h.events != nil && isOfEvents(e.GroupResource()) && e.Stream.Reason != consume.ReasonContentChanged {
		h.events.gaps = append(h.events.gaps, e)
	}
	h.Gaps = append(h.Gaps, newGap(e))
	return h.shower.ShowGap(e)
}
