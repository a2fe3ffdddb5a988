package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Live is what the second moment of a diff is called if it is the running cluster.
const Live = "live"

// Diff prints the differences between two moments.
func (q *Question) Diff(ctx context.Context, from, to timeline.Moment) error {
	states, err := q.states(ctx, from, to)
	if err != nil {
		return err
	}
	unlabelled := func(d timeline.Difference) bool { return !d.Any(q.labelled) }
	found := slices.DeleteFunc(timeline.Diff(states[0].State, states[1].State), unlabelled)
	return q.answerDiff(found, &states[0].sure, &states[1].sure)
}

// DiffLive prints the differences between a moment and the running cluster.
func (q *Question) DiffLive(ctx context.Context, from timeline.Moment, to *Cluster) error {
	states, err := q.states(ctx, from)
	if err != nil {
		return err
	}
	found, err := q.compareLive(ctx, to, &states[0])
	if err != nil {
		return err
	}
	now := certainty.New(Live, nil, "")
	now.Certainty = certainty.Exact // the cluster itself
	return q.answerDiff(found, &states[0].sure, &assessment{Answer: now})
}

// answerDiff prints the differences that the record can decide at both moments.
func (q *Question) answerDiff(found []timeline.Difference, from, to *assessment) error {
	differences := slices.DeleteFunc(differencesOf(found), func(d difference) bool {
		return !from.knows(d.of) || !to.knows(d.of)
	})
	hidden := len(differences)
	if q.NoStatus {
		differences = slices.DeleteFunc(differences, func(d difference) bool { return isOnlyStatus(d.Before, d.After) })
	}
	hidden -= len(differences)
	q.say(from)
	q.say(to)
	if hidden > 0 {
		fmt.Fprintf(q.Stderr, "hidden: %d of %d objects (--no-status)\n", hidden, hidden+len(differences))
	}
	if err := q.printDifferences(differences, from, to); err != nil {
		return err
	}
	if len(differences)+hidden == 0 {
		fmt.Fprintln(q.Stderr,
			"No differences found. 'kubecdc history' shows what changed and changed back in between.")
	}
	return errors.Join(q.judge(from), q.judge(to))
}

// difference is the JSON form of an object that differs.
type difference struct {
	Op        string          `json:"op"` // created, updated, deleted, left, entered
	Resource  string          `json:"resource"`
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name"`
	UID       string          `json:"uid"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
	Redacted  bool            `json:"redacted,omitempty"` // values of one of them are removed or replaced

	event *consume.Event
	of    *timeline.Version
}

// differencesOf returns the JSON forms of differences.
func differencesOf(all []timeline.Difference) []difference {
	var out []difference
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
		e := eventOf(of, op)
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
		out = append(out, difference{
			opWord(op), of.Resource, of.Namespace, of.Name, of.UID, e.Data.Before, e.Data.After, isRedacted, e, of,
		})
	}
	return out
}

// redactedOf reports, in the form of an event, whether a version has redacted values.
func redactedOf(v *timeline.Version) *bool {
	is := v.Redacted()
	return &is
}

// opWord returns the word for an operation.
func opWord(op consume.Op) string {
	for _, kind := range console.Kinds() {
		if kind[:1] == string(op) {
			return kind
		}
	}
	return string(op)
}

// eventOf returns an event for a version, without the object.
func eventOf(v *timeline.Version, op consume.Op) *consume.Event {
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

func (q *Question) printDifferences(differences []difference, from, to *assessment) error {
	switch q.Format.Name {
	case printer.JSON, printer.YAML, printer.JSONPath:
		return q.printValue(struct {
			From        *assessment  `json:"from"`
			To          *assessment  `json:"to"`
			Differences []difference `json:"differences"`
		}{from, to, append([]difference{}, differences...)})
	case printer.Name:
		for _, d := range differences {
			if _, err := fmt.Fprintln(q.Stdout, kindName(d.of)); err != nil {
				return err
			}
		}
		return nil
	}
	o := console.Options{Timeless: true, Wide: q.Format.Wide(), Reads: true}
	if q.Format.Name != printer.Table {
		o.View = console.Diff
	}
	p := console.New(q.Stdout, o)
	for _, d := range differences {
		if err := p.Print(d.event); err != nil {
			return err
		}
	}
	return p.Finish()
}
