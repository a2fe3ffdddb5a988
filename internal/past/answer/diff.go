package answer

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/live"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Live is what the second moment of a diff is called if it is the running cluster.
const Live = "live"

// Diff is what differs between two moments.
type Diff struct {
	From        *Assessment  `json:"from"`
	To          *Assessment  `json:"to"`
	Differences []Difference `json:"differences"` // not nil

	Hidden int `json:"-"` // the objects that NoStatus leaves out
}

// Diff returns the differences between two moments that the record can decide at both.
func (q *Question) Diff(ctx context.Context, from, to timeline.Moment) (*Diff, error) {
	states, err := q.States(ctx, from, to)
	if err != nil {
		return nil, err
	}
	unlabelled := func(d timeline.Difference) bool { return !d.Any(q.hasLabels) }
	found := slices.DeleteFunc(timeline.Diff(states[0].State, states[1].State), unlabelled)
	return q.diff(found, &states[0].Sure, &states[1].Sure), nil
}

// DiffLive returns the differences between a state and the running cluster that the record can
// decide.
func (q *Question) DiffLive(from *State, to *live.Answer) *Diff {
	now := certainty.New(Live, nil, "")
	now.Certainty = certainty.Exact // the cluster itself
	return q.diff(to.Differences, &from.Sure, &Assessment{Answer: now})
}

func (q *Question) diff(found []timeline.Difference, from, to *Assessment) *Diff {
	differences := slices.DeleteFunc(differencesOf(found), func(d Difference) bool {
		return !from.knows(d.Of) || !to.knows(d.Of)
	})
	hidden := len(differences)
	if q.NoStatus {
		differences = slices.DeleteFunc(differences, func(d Difference) bool { return isOnlyStatus(d.Before, d.After) })
	}
	hidden -= len(differences)
	return &Diff{
		From:        from,
		To:          to,
		Differences: append([]Difference{}, differences...),
		Hidden:      hidden,
	}
}

// Difference is the JSON form of an object that differs.
type Difference struct {
	Op        string          `json:"op"` // created, updated, deleted, left, entered
	Resource  string          `json:"resource"`
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name"`
	UID       string          `json:"uid"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
	Redacted  bool            `json:"redacted,omitempty"` // values of one of them are removed or replaced

	Event *consume.Event    `json:"-"` // of the change
	Of    *timeline.Version `json:"-"` // the version that the names are of
}

// differencesOf returns the JSON forms of differences.
func differencesOf(all []timeline.Difference) []Difference {
	var out []Difference
	for _, d := range all {
		of, op := d.After, consume.Updated
		switch {
		case d.Before == nil && d.After.Op == consume.Entered:
			op = consume.Entered
		case d.Before == nil:
			op = consume.Created
		case d.After == nil || d.After.Op == consume.Deleted:
			of, op = d.Before, consume.Deleted
		case d.After.Op == consume.Left:
			of, op = d.Before, consume.Left
		}
		e := EventOf(of, op)
		if d.Before != nil {
			e.Data.Before = d.Before.After
		}
		if op == consume.Created || op == consume.Updated || op == consume.Entered {
			e.Data.After = d.After.After
		}
		isRedacted := d.Before != nil && d.Before.Redacted() || d.After != nil && d.After.Redacted()
		if isRedacted {
			e.Data.Redacted = &isRedacted
		}
		out = append(out, Difference{
			op.Word(), of.Resource, of.Namespace, of.Name, of.UID, e.Data.Before, e.Data.After, isRedacted, e, of,
		})
	}
	return out
}

// RedactedOf reports, in the form of an event, whether a version has redacted values.
func RedactedOf(v *timeline.Version) *bool {
	is := v.Redacted()
	return &is
}

// EventOf returns an event for a version, without the object.
func EventOf(v *timeline.Version, op consume.Op) *consume.Event {
	resource, _, _ := strings.Cut(v.Resource, ".")
	return &consume.Event{
		ID:              v.ID,
		Source:          v.Source,
		Time:            v.Time,
		Cluster:         v.Cluster,
		ClusterUID:      v.ClusterUID,
		APIVersion:      v.APIVersion,
		Kind:            v.Kind,
		Resource:        resource,
		Namespace:       v.Namespace,
		Name:            v.Name,
		UID:             v.UID,
		Op:              op,
		ResourceVersion: v.ResourceVersion,
		Scope:           v.Scope,
		Data:            &consume.Data{Op: op, ResourceVersion: v.ResourceVersion},
	}
}
