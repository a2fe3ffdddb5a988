package answer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// CheckKnown returns an error if the record has none of the requested resources. If it has only
// some of them, CheckKnown adds the others to the scopes of c as unknown.
func (q *Question) CheckKnown(ctx context.Context, c *Assessment, objects int) error {
	if err := q.checkPartlyKnown(ctx, c, objects); err != nil {
		return err
	}
	captured := map[string]bool{} // by the user's word
	for _, r := range q.Wanted.Resources {
		if slices.ContainsFunc(c.Scopes, func(s certainty.Scope) bool { return s.Resource == r.String() }) {
			captured[r.Word] = true
		}
	}
	for _, r := range q.Wanted.Resources {
		if !captured[r.Word] {
			none := certainty.Scope{Resource: r.String(), Name: r.String()}
			none.Lower(certainty.Cause{Kind: certainty.NoSnapshot})
			c.AddScope(none)
		}
	}
	return nil
}

// NotInRecordError is the error that the record has nothing for a moment.
type NotInRecordError struct{ error }

func (e NotInRecordError) Unwrap() error { return e.error }

// checkPartlyKnown returns an error if the record cannot answer for any of the requested resources
// at the moment.
func (q *Question) checkPartlyKnown(ctx context.Context, c *Assessment, objects int) error {
	if len(c.Scopes) == 0 && objects == 0 {
		return q.explainNeverCaptured(ctx)
	}
	isOfThisEtcd := func(s certainty.Scope) bool { return s.Find(certainty.OtherEtcd) == nil }
	if len(c.Scopes) > 0 && !slices.ContainsFunc(c.Scopes, isOfThisEtcd) {
		return NotInRecordError{
			fmt.Errorf("the resourceVersions of %s are of another etcd than %s, or not numbers: use a time (14:05, 2h)",
				c.Scopes[0].Resource, c.Moment),
		}
	}
	if objects > 0 {
		return nil
	}
	var first certainty.Bound
	for i := range c.Scopes {
		begin, isLater := c.Scopes[i].Begin()
		if !isLater {
			return nil
		}
		if i == 0 || begin.Time.Before(first.Time) {
			first = begin
		}
	}
	return NotInRecordError{
		fmt.Errorf("the moment %s is before the record, which begins at %s: use a later moment", c.Moment,
			first.Words()),
	}
}

// explainNeverCaptured returns the error that the record has none of the requested resources.
func (q *Question) explainNeverCaptured(ctx context.Context) error {
	var known []record.Resource
	if err := q.During(ctx, func(ctx context.Context) (err error) {
		known, err = q.Record.Resources(ctx)
		return err
	}); err != nil {
		return err
	}
	var words []string
	for _, r := range q.Wanted.Resources {
		words = append(words, r.String())
	}
	e := &record.UnknownResourceError{Word: strings.Join(words, ", ")}
	for _, r := range known {
		e.Known = append(e.Known, r.String())
	}
	if only := q.Record.Lacks(q.Wanted); only != "" {
		return fmt.Errorf("%w; %s", e, only)
	}
	if wanted := strings.TrimSpace(q.Wanted.Cluster + " " + q.Wanted.ClusterUID); wanted != "" && len(e.Known) > 0 {
		return fmt.Errorf("%w; or it has no cluster %s (--cluster)", e, wanted)
	}
	isUnknown := func(r record.Resource) bool { return !slices.Contains(e.Known, r.String()) }
	if len(words) > 0 && !slices.ContainsFunc(q.Wanted.Resources, isUnknown) {
		return NotInRecordError{
			fmt.Errorf("the record does not say who observes %s there: if it is young, ask again in a minute", e.Word),
		}
	}
	return e
}

// ExplainNone returns the error that the object of the question does not exist, with the times at
// which it did. The question names one object.
func (q *Question) ExplainNone(ctx context.Context, at timeline.Moment) error {
	r := q.Wanted.Resources[0]
	if only := q.Record.Lacks(q.Wanted); only != "" {
		return fmt.Errorf("%s %q: whether it existed at %s is not known: %s, and it is not there", r, r.Names[0], at,
			only)
	}
	var last, next *timeline.Version
	if err := q.During(ctx, func(ctx context.Context) error {
		if q.Record.Seeks() { // a name that never existed costs no stream events
			if has, err := q.Record.Has(ctx, q.Wanted); err != nil || !has {
				return err
			}
		}
		_, _, err := q.Record.Versions(ctx, q.Wanted, nil, timeline.Now(time.Now()),
			func(v *timeline.Version, e *consume.Event) error {
				switch {
				case v == nil:
				case at.Includes(e):
					known := *v
					last = &known
				case next == nil:
					known := *v
					next = &known
				}
				return nil
			})
		return err
	}); err != nil {
		return err
	}
	name := fmt.Sprintf("%s %q", r, r.Names[0])
	where := ""
	if q.Wanted.Namespace != "" {
		where = " in namespace " + q.Wanted.Namespace
	}
	switch {
	case last != nil && last.Gone():
		return fmt.Errorf("%s did not exist%s at %s: it was %s at %s", name, where, at, ended(last),
			last.Time.Local().Format(time.RFC3339))
	case last != nil:
		return fmt.Errorf("%s existed%s at %s and does not match the selector", name, where, at)
	case next != nil:
		return fmt.Errorf("%s did not exist%s at %s, according to the record, which has it from %s", name, where, at,
			next.Time.Local().Format(time.RFC3339))
	}
	return fmt.Errorf("%s is not in the record%s at any moment: check the name, the namespace and the cluster%s", name,
		where,
		q.suggestSimilar(ctx, r.Names[0], q.Wanted.WithoutNames(), namesOf))
}

// ended describes how an object left the record.
func ended(v *timeline.Version) string {
	if v.Op == consume.Left {
		return "no longer selected"
	}
	return "deleted"
}
