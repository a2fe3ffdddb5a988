package answer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Blame says who set each line of an object.
type Blame struct {
	Breaks

	Lines       []timeline.Line   // none: the object does not exist
	Last        *timeline.Version // nil without any
	Sure        Assessment
	LateUnknown bool // late spans were not looked for
}

// Blame returns the author of each line of an object at a moment.
func (q *Question) Blame(ctx context.Context, at timeline.Moment) (*Blame, error) {
	if !q.Wanted.IsOne() {
		return nil, UsageError{errors.New("blame: name one object (kubecdc blame deploy/web -n shop)")}
	}
	var b timeline.Blame
	var scopes []certainty.Scope
	var reading *record.Reading
	var out Blame
	clusters, places := Clusters{}, map[place]bool{}
	versions := 0
	var first time.Time
	q.Record.OnLate = func(all []timeline.Late) error {
		out.addLate(all)
		return nil
	}
	defer func() { q.Record.OnLate = nil }()
	if err := q.During(ctx, func(ctx context.Context) (err error) {
		scopes, reading, err = q.Record.Versions(ctx, q.Wanted, nil, at,
			func(v *timeline.Version, e *consume.Event) error {
				if v == nil {
					out.Gaps = append(out.Gaps, newGap(e))
					return nil
				}
				if versions == 0 || v.Time.Before(first) {
					first = v.Time
				}
				versions++
				out.Last = v
				clusters[v.ClusterKey()] = v.Cluster
				places[place{v.ClusterKey(), v.Namespace}] = true
				return b.Add(v)
			})
		return err
	}); err != nil {
		return nil, err
	}
	out.Sure = Assess(at, scopes, reading)
	if err := q.CheckKnown(ctx, &out.Sure, versions); err != nil {
		return nil, err
	}
	if len(places) > 1 {
		return nil, UsageError{
			fmt.Errorf(
				"blame: the record has several objects of this name: add --namespace and %s for one of (cluster namespace): %s",
				clusters.Flags("cluster"), strings.Join(clusters.places(places), "; ")),
		}
	}
	lines, err := b.Lines()
	if err != nil {
		return nil, err
	}
	out.dropBefore(first)
	for i := range lines {
		lines[i].Origin = out.withTime(lines[i].Origin)
	}
	out.Lines, out.LateUnknown = lines, reading.LateUnknown
	return &out, nil
}

// place is where an object of a name is.
type place struct {
	cluster   consume.ClusterKey
	namespace string
}

// places returns the texts for places, sorted.
func (c Clusters) places(all map[place]bool) []string {
	var out []string
	for p := range all {
		out = append(out, c.Label(p.cluster)+" "+p.namespace)
	}
	slices.Sort(out)
	return out
}
