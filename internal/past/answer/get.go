package answer

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// State is a state with the objects that are asked for.
type State struct {
	*timeline.State
	Asked []*timeline.Version
	Sure  Assessment
}

// States reads the states at moments. It returns an error if the record has no answer for one of
// them, or several clusters.
func (q *Question) States(ctx context.Context, moments ...timeline.Moment) ([]State, error) {
	var read timeline.States
	var reading *record.Reading
	if err := q.During(ctx, func(ctx context.Context) (err error) {
		read, reading, err = q.Record.States(ctx, q.Wanted, moments...)
		return err
	}); err != nil {
		return nil, err
	}
	states, clusters := make([]State, len(read)), Clusters{}
	for k, s := range read {
		sure := Assess(moments[k], s.Scopes(), reading)
		objects := q.objects(s, &sure)
		if err := q.CheckKnown(ctx, &sure, len(objects)); err != nil {
			return nil, err
		}
		clusters.Add(objects)
		states[k] = State{s, objects, sure}
	}
	return states, clusters.One("objects", "cluster")
}

// objects returns the objects of a state that match the label selector. It records in c the objects
// whose content is missing, and omits resources without an answer at the moment.
func (q *Question) objects(s *timeline.State, c *Assessment) []*timeline.Version {
	var out []*timeline.Version
	for _, v := range s.Objects() {
		switch {
		case c.isOfOtherEtcd(v):
		case v.After == nil:
			c.AddIncomplete(certainty.ObjectName(v.Resource, v.Namespace, v.Name), "existed")
		case q.hasLabels(v.After):
			out = append(out, v)
		}
	}
	return out
}
