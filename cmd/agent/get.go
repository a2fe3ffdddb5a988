package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/internal/apiview"
	"github.com/kubecdc/kubecdc/internal/console"
	"github.com/kubecdc/kubecdc/internal/history"
	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

type getFlags struct {
	askFlags
	at       string
	forApply bool
}

func newGetCommand(stdout, stderr io.Writer) *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "get {RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME... | all}",
		Short: "Show the objects that existed at a moment",
		Long: `Show the objects that existed at a moment, as the record on a bus or in a file has them.

` + momentHelp + `

` + resourceHelp + `

The table shows how long before the moment each object was created and last changed, and by whom. >5m: a snapshot found
it 5m before, so that it was changed earlier. If all objects are of one resource of Kubernetes, the table also has the
columns of kubectl, and -o wide all of them. -o json prints a List, as kubectl does, with the certainty in its field
kubecdc. -o yaml prints a document for each object. -o jsonpath=TEMPLATE is that of kubectl: of the object, if one is
named, else of the List.

--for-apply prints YAML without what the server fills in, ready for 'kubectl apply -f -'. It leaves out objects with
redacted values, which must not be applied, and removes owner references, which hold uids of the past.

` + certaintyHelp,
		Example: `  kubecdc get deploy,cm -n shop --at 14:05
  kubecdc get pods -l app=web --at 2h -o wide
  kubecdc get deploy/web -n shop --at 'yesterday 14:05' --for-apply | kubectl apply -f -
  kubecdc get secrets -A --at rv:48211 -o json --exact
  kubecdc get all --at 2026-11-20T15:00:00Z --bus file:events.jsonl -o name`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.finish(get(cmd.Context(), &f, args, stdout, stderr))
		},
	}
	f.addSelector(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.at, "at", "now", "the `moment`")
	completeWords(cmd, "at", "now", "10m", "1h", "24h")
	f.add(cmd, objectFormats())
	fl.BoolVar(&f.forApply, "for-apply", false, "print YAML without what the server fills in, for kubectl apply")
	return cmd
}

// get prints the objects of a moment.
func get(ctx context.Context, f *getFlags, args []string, stdout, stderr io.Writer) error {
	switch {
	case len(args) == 0:
		return usageError{errors.New("get: name resources (pods, deploy/web, deployments.apps), or all")}
	case f.forApply && !f.output.variable && f.output.format != tableFormat && f.output.format != yamlFormat:
		return usageError{fmt.Errorf("--for-apply prints YAML, got -o %s", f.output.format)}
	}
	at, err := timeline.ParseMoment(f.at, time.Now())
	if err != nil {
		return usageError{fmt.Errorf("--at: %w", err)}
	}
	q, err := f.ask(ctx, args, stdout, stderr)
	if err != nil {
		return err
	}
	var states timeline.States
	var reading *history.Reading
	if err := q.during(ctx, func(ctx context.Context) error {
		states, reading, err = q.record.States(ctx, q.wanted, at)
		return err
	}); err != nil {
		return err
	}
	sure := newCertainty(at, states[0].Scopes(), reading)
	objects := q.objects(states[0], &sure)
	if err := q.known(ctx, &sure, len(objects)); err != nil {
		return err
	}
	if err := q.oneCluster(objects); err != nil {
		return err
	}
	q.say(&sure)
	if err := f.print(q, objects, &sure); err != nil {
		return err
	}
	if len(objects) == 0 {
		if err := q.explainNone(ctx, at); err != nil {
			return err
		}
	}
	return f.judge(&sure)
}

// judge returns errNotExact if --exact is set and the answer is not exact.
func (f *askFlags) judge(c *certainty) error {
	if f.exact && c.Certainty != timeline.Exact {
		return errNotExact
	}
	return nil
}

// objects returns the objects of a state that match the label selector. It records in c the objects whose content is missing, and omits
// resources without an answer at the moment.
func (q *question) objects(s *timeline.State, c *certainty) []*timeline.Version {
	var out []*timeline.Version
	for _, v := range s.Objects() {
		switch {
		case c.otherHistory(v.Resource):
		case v.After == nil:
			c.lacks(v)
		case q.wanted.Selector == nil || q.wanted.Selector.Matches(labelsOf(v.After)):
			out = append(out, v)
		}
	}
	return out
}

// lacks records in c an object that existed but whose content is not in the record.
func (c *certainty) lacks(v *timeline.Version) {
	name := fmt.Sprintf("%s %s", v.Resource, objectName(v))
	if !slices.ContainsFunc(c.Incomplete, func(text string) bool { return strings.HasPrefix(text, name+":") }) {
		c.Incomplete = append(c.Incomplete, name+": existed")
	}
	c.Certainty = max(c.Certainty, timeline.Uncertain)
}

func objectName(v *timeline.Version) string {
	if v.Namespace == "" {
		return v.Name
	}
	return v.Namespace + "/" + v.Name
}

func labelsOf(object []byte) labels.Set {
	var o struct {
		Metadata struct{ Labels map[string]string }
	}
	_ = json.Unmarshal(object, &o) // impossible to fail: it came from JSON
	return o.Metadata.Labels
}

// known returns an error if the record has none of the requested resources. If it has only some of them, known adds the others to the
// scopes of c as unknown.
func (q *question) known(ctx context.Context, c *certainty, objects int) error {
	if err := q.partlyKnown(ctx, c, objects); err != nil {
		return err
	}
	captured := map[string]bool{} // by the user's word
	for _, r := range q.wanted.Resources {
		if slices.ContainsFunc(c.Scopes, func(s timeline.Scope) bool { return s.Resource == r.String() }) {
			captured[r.Word] = true
		}
	}
	for _, r := range q.wanted.Resources {
		if !captured[r.Word] {
			c.Scopes = append(c.Scopes, timeline.Scope{Resource: r.String(), Name: r.String(), Certainty: timeline.Unknown})
			c.Certainty = timeline.Unknown
		}
	}
	return nil
}

// notInRecordError is the error that the record has nothing for a moment.
type notInRecordError struct{ error }

func (e notInRecordError) Unwrap() error { return e.error }

// partlyKnown returns an error if the record cannot answer for any of the requested resources at the moment.
func (q *question) partlyKnown(ctx context.Context, c *certainty, objects int) error {
	if len(c.Scopes) == 0 && objects == 0 {
		return q.neverCaptured(ctx)
	}
	if len(c.Scopes) > 0 && !slices.ContainsFunc(c.Scopes, func(s timeline.Scope) bool { return !s.OtherHistory }) {
		return notInRecordError{fmt.Errorf("the resourceVersions of %s are of another etcd than %s, or not numbers: use a time (14:05, 2h)", c.Scopes[0].Resource, c.Moment)}
	}
	for _, s := range c.Scopes { // unknown if all are before the record
		if s.Certainty != timeline.Unknown || s.To.Time.IsZero() && s.To.ResourceVersion == "" {
			return nil
		}
	}
	if objects > 0 {
		return nil
	}
	first := slices.MinFunc(c.Scopes, func(a, b timeline.Scope) int { return a.To.Time.Compare(b.To.Time) })
	return notInRecordError{fmt.Errorf("the moment %s is before the record, which begins at %s: use a later moment", c.Moment, bound(first.To))}
}

// neverCaptured returns the error that the record has none of the requested resources.
func (q *question) neverCaptured(ctx context.Context) error {
	var known []history.Resource
	if err := q.during(ctx, func(ctx context.Context) (err error) {
		known, err = q.record.Resources(ctx)
		return err
	}); err != nil {
		return err
	}
	var words []string
	for _, r := range q.wanted.Resources {
		words = append(words, r.String())
	}
	e := &history.UnknownResourceError{Word: strings.Join(words, ", ")}
	for _, r := range known {
		e.Known = append(e.Known, r.String())
	}
	if q.wanted.Cluster != "" && len(e.Known) > 0 {
		return fmt.Errorf("%w; or it has no cluster %s (--cluster)", e, q.wanted.Cluster)
	}
	return e
}

// oneCluster returns an error if the answer contains several clusters.
func (q *question) oneCluster(objects []*timeline.Version) error {
	var clusters []string
	for _, v := range objects {
		if !slices.Contains(clusters, v.Cluster) {
			clusters = append(clusters, v.Cluster)
		}
	}
	if len(clusters) < 2 {
		return nil
	}
	slices.Sort(clusters)
	return usageError{fmt.Errorf("the record has objects of several clusters: name one with --cluster: %s", strings.Join(clusters, ", "))}
}

// explainNone reports that there is no object, and when objects with the requested names existed.
func (q *question) explainNone(ctx context.Context, at timeline.Moment) error {
	if !q.wanted.One() {
		fmt.Fprintln(q.stderr, "No objects found.")
		return nil
	}
	r := q.wanted.Resources[0]
	var last, next *timeline.Version
	if err := q.during(ctx, func(ctx context.Context) error {
		_, _, err := q.record.Versions(ctx, q.wanted, timeline.Now(q.now), func(v *timeline.Version, e *consume.Event) error {
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
	if q.wanted.Namespace != "" {
		where = " in namespace " + q.wanted.Namespace
	}
	switch {
	case last != nil && last.Gone():
		return fmt.Errorf("%s did not exist%s at %s: it was %s at %s", name, where, at, ended(last), last.Time.Local().Format(time.RFC3339))
	case last != nil:
		return fmt.Errorf("%s existed%s at %s and does not match the selector", name, where, at)
	case next != nil:
		return fmt.Errorf("%s did not exist%s at %s, according to the record, which has it from %s", name, where, at, next.Time.Local().Format(time.RFC3339))
	}
	return fmt.Errorf("%s is not in the record%s at any moment: check the name, the namespace and the cluster", name, where)
}

// ended describes how an object left the record.
func ended(v *timeline.Version) string {
	if v.Op == consume.Left {
		return "no longer selected"
	}
	return "deleted"
}

// print prints objects in the selected format.
func (f *getFlags) print(q *question, objects []*timeline.Version, c *certainty) error {
	if f.forApply {
		return q.printForApply(objects)
	}
	switch f.output.format {
	case jsonPathFormat:
		return q.printTemplate(&f.output, objects)
	case jsonFormat:
		return q.printList(objects, c)
	case yamlFormat:
		return q.printDocuments(objects)
	case nameFormat:
		var b strings.Builder
		for _, v := range objects {
			b.WriteString(kindName(v) + "\n")
		}
		_, err := io.WriteString(q.stdout, b.String())
		return err
	}
	return q.printTable(objects, f.output.wide(), c.time)
}

// kindName returns the name in the form of kubectl get -o name.
func kindName(v *timeline.Version) string {
	_, group, _ := strings.Cut(v.Resource, ".")
	return kindNameOf(v.Kind, group, v.Name)
}

func kindNameOf(kind, group, name string) string {
	kind = strings.ToLower(kind)
	if group != "" {
		kind += "." + group
	}
	return kind + "/" + name
}

// printList prints a List as JSON, one object at a time: the text is several times as large as the state. Field kubecdc has the certainty.
func (q *question) printList(objects []*timeline.Version, c *certainty) error {
	const enough = 64 << 10
	var b bytes.Buffer
	b.WriteString("{\n    \"apiVersion\": \"v1\",\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    },\n    \"items\": [")
	for k, v := range objects {
		if k > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n        ")
		if err := json.Indent(&b, v.After, "        ", "    "); err != nil {
			return fmt.Errorf("%s %s: %w", v.Resource, objectName(v), err)
		}
		if b.Len() > enough {
			if err := q.write(b.Bytes()); err != nil {
				return err
			}
			b.Reset()
		}
	}
	if len(objects) > 0 {
		b.WriteString("\n    ")
	}
	b.WriteString("],\n    \"kubecdc\": ")
	sure, err := json.MarshalIndent(c, "    ", "    ")
	if err != nil {
		return err
	}
	b.Write(append(sure, "\n}\n"...))
	return q.write(b.Bytes())
}

// printTemplate executes a template: on the object if one is named, otherwise on a List.
func (q *question) printTemplate(o *output, objects []*timeline.Version) error {
	items := []json.RawMessage{}
	for _, v := range objects {
		items = append(items, v.After)
	}
	var data any = map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	switch {
	case q.wanted.One() && len(items) == 1:
		data = items[0]
	case len(items) == 0:
		return nil
	}
	return q.printValue(o, data)
}

// printJSON prints a value as indented JSON. At a terminal, it makes control characters harmless.
func (q *question) printJSON(value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "    ")
	if err := e.Encode(value); err != nil {
		return err
	}
	text := b.Bytes()
	if q.stdout.Interactive {
		text = console.AppendHarmless(nil, text)
	}
	_, err := q.stdout.Write(text)
	return err
}

func (q *question) printDocuments(objects []*timeline.Version) error {
	var b bytes.Buffer
	for k, v := range objects {
		if k > 0 {
			b.WriteString("---\n")
		}
		text, err := yaml.JSONToYAML(v.After)
		if err != nil {
			return fmt.Errorf("%s %s: %w", v.Resource, objectName(v), err)
		}
		b.Write(text)
	}
	_, err := q.stdout.Write(b.Bytes())
	return err
}

// printTable prints a line for each object. Objects of one resource of Kubernetes have the columns that kubectl shows. Ages are relative to
// now, the moment.
func (q *question) printTable(objects []*timeline.Version, wide bool, now time.Time) error {
	if len(objects) == 0 {
		return nil
	}
	several := slices.ContainsFunc(objects, func(v *timeline.Version) bool { return v.Resource != objects[0].Resource })
	titles, cells := columnsOf(objects, wide)
	namespaced := q.wanted.Namespace == "" || strings.ContainsAny(q.wanted.Namespace, "*?[")
	w := tabwriter.NewWriter(q.stdout, 0, 0, 3, ' ', 0)
	row := func(namespace, name string, of []string, changed, by, rv, uid string) {
		columns := slices.Concat([]string{name}, of, []string{changed, by})
		if namespaced {
			columns = slices.Insert(columns, 0, namespace)
		}
		if wide {
			columns = append(columns, rv, uid)
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(columns, "\t"), "\t"))
	}
	row("NAMESPACE", "NAME", titles, "LAST CHANGE", "BY", "RESOURCEVERSION", "UID")
	for _, v := range objects {
		name := v.Name
		if several {
			name = kindName(v)
		}
		changed := ago(now, v.Time)
		if v.Op == consume.Read { // read by a snapshot, so the change was earlier
			changed = ">" + changed
		}
		of, err := cells(v.After, now)
		if err != nil {
			return fmt.Errorf("%s %s: %w", v.Resource, objectName(v), err)
		}
		for i := range of {
			of[i] = console.Printable(of[i])
		}
		row(console.Printable(v.Namespace), console.Printable(name), of, changed, managers(v), v.ResourceVersion, v.UID)
	}
	return w.Flush()
}

// columnsOf returns the columns between the name and the last change: those of kubectl if the objects are of one resource of Kubernetes, else the
// age.
func columnsOf(objects []*timeline.Version, wide bool) (titles []string, cells func(object []byte, now time.Time) ([]string, error)) {
	first := objects[0]
	if !slices.ContainsFunc(objects, func(v *timeline.Version) bool {
		return v.Resource != first.Resource || v.APIVersion != first.APIVersion
	}) {
		plural, _, _ := strings.Cut(first.Resource, ".")
		if titles, cells = apiview.Columns(first.APIVersion, plural, wide); titles != nil {
			return titles, cells
		}
	}
	return []string{"AGE"}, func(object []byte, now time.Time) ([]string, error) { return []string{ago(now, created(object))}, nil }
}

// ago formats the time between at and now, as kubectl prints it.
func ago(now, at time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(now.Sub(at), 0))
}

// created returns the creation time in the object.
func created(object []byte) time.Time {
	var o struct {
		Metadata struct{ CreationTimestamp time.Time }
	}
	_ = json.Unmarshal(object, &o) // zero if the object has none
	return o.Metadata.CreationTimestamp
}

// managers returns the field managers that made a version.
func managers(v *timeline.Version) string {
	var out []string
	for _, c := range v.ChangedBy {
		if !slices.Contains(out, c.Manager) {
			out = append(out, c.Manager)
		}
	}
	return cmp.Or(console.Printable(strings.Join(out, ",")), "<unknown>")
}
