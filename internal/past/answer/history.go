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

// Span selects the versions that a SpanReader reads.
type Span struct {
	Since *timeline.Moment // nil for the beginning of the record
	Until timeline.Moment
	// Events shows the Kubernetes Events about the objects, and about what they own.
	Events bool
	Filters
}

// Shower takes what a SpanReader finds, in the order of the record. An error ends the reading. It
// may ask the SpanReader, and changes nothing that it gets.
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

// SpanReader reads the versions of the objects of a question in a span. Its methods are called in
// this order: PlanEvents with Span.Events, then Read. The fields about the whole span are complete
// after Read; a Shower may read them before.
type SpanReader struct {
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

// NewSpanReader returns the reader of a span of the record.
func (q *Question) NewSpanReader(s *Span) *SpanReader {
	if s.Since != nil {
		q.Record.Since = s.Since.Time()
	}
	return &SpanReader{
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
func (r *SpanReader) ReadsAll() bool { return r.q.Record.HasSeveralLogs() && r.q.Record.Since.IsZero() }

// Read reads the versions, and hands them to a Shower. It returns an error if the record has none
// of the requested resources.
func (r *SpanReader) Read(ctx context.Context, shower Shower) error {
	r.shower = shower
	q := r.q
	var scopes []certainty.Scope
	var reading *record.Reading
	if err := q.During(ctx, func(ctx context.Context) (err error) {
		q.Record.OnLate = r.takeLate
		defer func() { q.Record.OnLate = nil }()
		scopes, reading, err = q.Record.Versions(ctx, r.asked, r.Since, r.Until, r.take)
		return err
	}); err != nil {
		return err
	}
	if r.Versions == 0 && !q.Record.Since.IsZero() {
		if err := r.countEarlier(ctx); err != nil {
			return err
		}
	}
	var err error
	r.Sure, err = r.assess(ctx, scopes, reading)
	if err != nil {
		return err
	}
	r.LateUnknown = reading.LateUnknown
	if r.Since != nil {
		begin := Assess(*r.Since, reading.Begin, &record.Reading{
			Began:      reading.Began,
			Only:       reading.Only,
			Unreadable: reading.Unreadable,
		})
		r.Begin, r.Sure.Since = &begin, &begin.Answer
	}
	return nil
}

// CheckPaths returns the error that no version has a value at one of the paths that the flags
// name, nil if all have been found.
func (r *SpanReader) CheckPaths() error { return r.paths.checkFound() }

// assess returns how certain the answer is. It returns an error if the record has none of the
// requested resources.
func (r *SpanReader) assess(
	ctx context.Context, scopes []certainty.Scope, reading *record.Reading,
) (Assessment, error) {
	sure := Assess(r.Until, scopes, reading)
	if r.events == nil {
		err := r.q.CheckKnown(ctx, &sure, r.Versions)
		return sure, err
	}
	isAsked := func(s certainty.Scope) bool { return r.q.Wanted.Resources == nil || r.q.Wanted.Has(s.Resource) }
	others := slices.DeleteFunc(slices.Clone(scopes), func(s certainty.Scope) bool { return !isAsked(s) })
	without := Assess(r.Until, others, reading)
	if err := r.q.CheckKnown(ctx, &without, r.Versions); err != nil {
		return sure, err
	}
	for _, missing := range without.Scopes[len(others):] {
		sure.AddScope(missing)
	}
	r.assessEvents(&sure)
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
func (r *SpanReader) countEarlier(ctx context.Context) error {
	r.q.Record.Since = time.Time{}
	return r.q.During(ctx, func(ctx context.Context) error {
		_, _, err := r.q.Record.Versions(ctx, r.q.Wanted, nil, r.Until,
			func(v *timeline.Version, _ *consume.Event) error {
				if v != nil {
					r.Versions++
				}
				return nil
			})
		return err
	})
}

// take takes a version or a gap.
func (r *SpanReader) take(v *timeline.Version, e *consume.Event) error {
	in := r.Since == nil || !r.Since.Includes(e)
	if v == nil {
		return r.takeGap(e, in)
	}
	if r.events != nil && isOfEvents(v.Resource) {
		return r.takeEvent(v, e, in)
	}
	r.Versions++
	r.noteCluster(e)
	key := objectKey{v.ClusterKey(), v.Resource, v.UID}
	before := v.Before
	if before == nil {
		before = r.last[key]
	}
	if v.Gone() {
		delete(r.last, key)
	} else {
		r.last[key] = v.After
	}
	if !r.q.hasLabels(before) && !r.q.hasLabels(v.After) {
		return nil
	}
	r.paths.lookForPaths(v, before)
	if !in || r.hides(v, before) {
		return nil
	}
	after := v.After
	if r.Field != nil {
		c := r.Field.compare(before, after)
		if !c.isChange {
			r.Hidden.Field++
			return nil
		}
		before, after = c.before, c.after
	}
	r.Shown++
	return r.shower.ShowVersion(v, e, before, after)
}

// noteCluster notes the cluster of an event.
func (r *SpanReader) noteCluster(e *consume.Event) {
	if len(r.Clusters) == 0 {
		r.First = e.ClusterKey()
	}
	r.Clusters[e.ClusterKey()] = e.Cluster
}

// ClusterOf returns what the line of an event says of its cluster: nothing if all lines so far are
// of one.
func (r *SpanReader) ClusterOf(e *consume.Event) string {
	if len(r.Clusters) < 2 {
		return ""
	}
	return r.Clusters.Label(e.ClusterKey())
}

func (r *SpanReader) takeGap(e *consume.Event, in bool) error {
	if !in {
		return nil
	}
	r.noteCluster(e)
	if r.events != nil && isOfEvents(e.GroupResource()) && e.Stream.Reason != consume.ReasonContentChanged {
		r.events.gaps = append(r.events.gaps, e)
	}
	r.Gaps = append(r.Gaps, newGap(e))
	return r.shower.ShowGap(e)
}
