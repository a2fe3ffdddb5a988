package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/console"
	"github.com/kubecdc/kubecdc/internal/history"
	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// liveMoment is the second moment if a diff compares with the running cluster.
const liveMoment = "live"

type diffFlags struct {
	askFlags
	running agent.Options // location of the running cluster
}

func newDiffCommand(stdout, stderr io.Writer) *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff FROM {TO|live} [RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME...]",
		Short: "Show what differs between two moments",
		Long: `Show the objects that were created, deleted or changed between two moments, with what differs, as
'kubecdc tail --diff' does. An object that was changed and changed back has another resourceVersion, and is listed. One
that was deleted and created again under its name is listed twice. "left": it no longer matches the selectors of the
agent and may still exist.

TO may be live: the running cluster of the kubeconfig. Objects with the same uid and resourceVersion are equal; others
are read in the API version of the record. "entered": the object is older than FROM, but was not in the record then.
Values that the record does not have are not compared: standard error lists them. --config names the paths that the
agent strips and redacts. Without it, a live value is printed only if the record has a value of the same object at the
same path: of a new object, only its identity. Values of Secrets are never printed.

` + momentHelp + `

` + resourceHelp + `

-o table prints a line for each object, -o wide all fields. -o json and -o yaml print both versions.
-o jsonpath=TEMPLATE is that of kubectl, of what -o json prints.

` + certaintyHelp,
		Example: `  kubecdc diff 14:00 14:10 -n shop
  kubecdc diff 2h now deploy,cm -n shop -o table
  kubecdc diff 14:00 live -n shop
  kubecdc diff rv:48007 rv:48211 deploy/web -n shop -o json --exact`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{errors.New("diff: name two moments (kubecdc diff 14:00 14:10)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.finish(diff(cmd.Context(), &f, args, stdout, stderr))
		},
	}
	f.add(cmd, changeFormats())
	f.addSelector(cmd)
	cmd.Flags().StringVar(&f.running.Kubeconfig, "kubeconfig", "", "kubeconfig `file` for live; default: $KUBECONFIG, ~/.kube/config")
	cmd.Flags().StringVar(&f.running.Context, "context", "", "`name` of the kubeconfig's context for live")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) < 2 {
			return []cobra.Completion{"now", "10m", "1h", "24h", liveMoment}[:4+len(args)], cobra.ShellCompDirectiveNoFileComp
		}
		return f.completeObjects(cmd, args[2:], typed)
	}
	return cmd
}

// diff prints the differences between two moments.
func diff(ctx context.Context, f *diffFlags, args []string, stdout, stderr io.Writer) error {
	moments, err := f.moments(args)
	if err != nil {
		return usageError{err}
	}
	q, err := f.ask(ctx, args[2:], stdout, stderr)
	if err != nil {
		return err
	}
	var states timeline.States
	var reading *history.Reading
	if err := q.during(ctx, func(ctx context.Context) error {
		states, reading, err = q.record.States(ctx, q.wanted, moments...)
		return err
	}); err != nil {
		return err
	}
	var sure []certainty
	for k, s := range states {
		c := newCertainty(moments[k], s.Scopes(), reading)
		objects := q.objects(s, &c)
		if err := q.known(ctx, &c, len(objects)); err != nil {
			return err
		}
		if err := q.oneCluster(objects); err != nil {
			return err
		}
		sure = append(sure, c)
	}
	var differences []difference
	if len(states) == 2 {
		unlabelled := func(d timeline.Difference) bool { return !d.Any(q.labelled) }
		differences = differencesOf(slices.DeleteFunc(timeline.Diff(states[0], states[1]), unlabelled))
	} else {
		found, err := f.compareLive(ctx, q, states[0], &sure[0])
		if err != nil {
			return err
		}
		differences = differencesOf(found)
		sure = append(sure, certainty{Moment: liveMoment, Certainty: timeline.Exact, Scopes: []timeline.Scope{}})
	}
	differences = slices.DeleteFunc(differences, func(d difference) bool { return !sure[0].knows(d.of) || !sure[1].knows(d.of) })
	for k := range sure {
		q.say(&sure[k])
	}
	if err := f.printDifferences(q, differences, sure); err != nil {
		return err
	}
	if len(differences) == 0 {
		fmt.Fprintln(q.stderr, "No differences found.")
	}
	return errors.Join(f.judge(&sure[0]), f.judge(&sure[1]))
}

// moments parses the first two arguments: two moments, or one if the second is live.
func (f *diffFlags) moments(args []string) ([]timeline.Moment, error) {
	var out []timeline.Moment
	for k, text := range args[:2] {
		if text == liveMoment && k == 1 {
			break
		}
		if text == liveMoment {
			return nil, errors.New("live: it can only be the second moment (kubecdc diff 14:00 live)")
		}
		m, err := timeline.ParseMoment(text, time.Now())
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
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
		out = append(out, difference{opWord(op), of.Resource, of.Namespace, of.Name, of.UID, e.Data.Before, e.Data.After, e, of})
	}
	return out
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

// labelled reports whether an object matches the label selector.
func (q *question) labelled(object json.RawMessage) bool {
	return q.wanted.Selector == nil || object != nil && q.wanted.Selector.Matches(labelsOf(object))
}

// eventOf returns an event for a version, without the object.
func eventOf(v *timeline.Version, op consume.Op) *consume.Event {
	resource, _, _ := strings.Cut(v.Resource, ".")
	return &consume.Event{
		ID: v.ID, Source: v.Source, Time: v.Time, Cluster: v.Cluster, ClusterUID: v.ClusterUID, APIVersion: v.APIVersion, Kind: v.Kind,
		Resource: resource, Namespace: v.Namespace, Name: v.Name, UID: v.UID, Op: op, ResourceVersion: v.ResourceVersion, Scope: v.Scope,
		Data: &consume.Data{Op: op, ResourceVersion: v.ResourceVersion},
	}
}

func (f *askFlags) printDifferences(q *question, differences []difference, sure []certainty) error {
	switch f.output.format {
	case jsonFormat, yamlFormat, jsonPathFormat:
		return q.printValue(&f.output, struct {
			From        certainty    `json:"from"`
			To          certainty    `json:"to"`
			Differences []difference `json:"differences"`
		}{sure[0], sure[1], append([]difference{}, differences...)})
	case nameFormat:
		for _, d := range differences {
			if _, err := fmt.Fprintln(q.stdout, kindName(d.of)); err != nil {
				return err
			}
		}
		return nil
	}
	o := console.Options{Timeless: true, Wide: f.output.wide(), Reads: true}
	if f.output.format != tableFormat {
		o.View = console.Diff
	}
	p := console.New(q.stdout, o)
	for _, d := range differences {
		if err := p.Print(d.event); err != nil {
			return err
		}
	}
	return p.Finish()
}

// printValue prints a value as JSON or YAML, or what the template makes of it.
func (q *question) printValue(o *output, value any) error {
	switch o.format {
	case jsonFormat:
		return q.printJSON(value)
	case jsonPathFormat:
		text, err := o.execute(value)
		if err != nil {
			return err
		}
		return q.write(text)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		return err
	}
	_, err = q.stdout.Write(text)
	return err
}
