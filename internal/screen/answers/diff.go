package answers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
)

// Diff prints the differences between two moments.
func (q *Question) Diff(ctx context.Context, from, to timeline.Moment) error {
	d, err := q.Question.Diff(ctx, from, to)
	if err != nil {
		return err
	}
	return q.showDiff(d)
}

// DiffLive prints the differences between a moment and the running cluster.
func (q *Question) DiffLive(ctx context.Context, from timeline.Moment, to *answer.Cluster) error {
	states, err := q.States(ctx, from)
	if err != nil {
		return err
	}
	state := &states[0]
	if err := q.CanCompare(state); err != nil {
		return err
	}
	fmt.Fprintf(q.Stderr, "live is the cluster at %s (%s)\n", to.Live.Client.Host, to.From)
	found, err := q.CompareLive(ctx, to, state)
	if err != nil {
		return err
	}
	if len(found.Own) > 0 {
		fmt.Fprintf(q.Stderr, "not compared, because the agent never captures its own checkpoint and Lease: %s\n",
			strings.Join(found.Own, ", "))
	}
	for _, resource := range slices.Sorted(maps.Keys(found.Withheld)) {
		fmt.Fprintf(q.Stderr, "not compared in %s, because the record does not have it: %s\n", resource,
			strings.Join(found.Withheld[resource], ", "))
	}
	for _, resource := range slices.Sorted(maps.Keys(found.Unproven)) {
		fmt.Fprintf(q.Stderr,
			"not shown in %s, because the agent may redact it; --config names its configuration: %s\n",
			resource, strings.Join(found.Unproven[resource], ", "))
	}
	return q.showDiff(q.Question.DiffLive(state, found))
}

// showDiff prints the differences, and what lowers their certainty.
func (q *Question) showDiff(d *answer.Diff) error {
	q.SayCertainty(d.From)
	q.SayCertainty(d.To)
	if d.Hidden > 0 {
		fmt.Fprintf(q.Stderr, "hidden: %d of %d objects (--no-status)\n", d.Hidden, d.Hidden+len(d.Differences))
	}
	if err := q.printDifferences(d); err != nil {
		return err
	}
	if len(d.Differences)+d.Hidden == 0 {
		fmt.Fprintln(q.Stderr,
			"No differences found. 'kubecdc history' shows what changed and changed back in between.")
	}
	return errors.Join(q.CheckExact(d.From), q.CheckExact(d.To))
}

func (q *Question) printDifferences(all *answer.Diff) error {
	switch q.Format.Name {
	case printer.JSON, printer.YAML, printer.JSONPath:
		return q.printValue(all)
	case printer.Name:
		for _, d := range all.Differences {
			if _, err := fmt.Fprintln(q.Stdout, answer.KindName(d.Of)); err != nil {
				return err
			}
		}
		return nil
	}
	o := console.Options{Timeless: true, Wide: q.Format.IsWide(), Reads: true}
	if q.Format.Name != printer.Table {
		o.View = console.Diff
	}
	p := console.New(q.Stdout, o)
	for _, d := range all.Differences {
		if err := p.Print(d.Event); err != nil {
			return err
		}
	}
	return p.Finish()
}
