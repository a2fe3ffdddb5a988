package main

import (
	"bytes"
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

	"github.com/kubecdc/kubecdc/internal/console"
	"github.com/kubecdc/kubecdc/internal/history"
	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

type historyFlags struct {
	askFlags
	since, until, field string
}

func newHistoryCommand(stdout, stderr io.Writer) *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history {RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME... | all}",
		Short: "Show every version of objects: when, what changed, who",
		Long: `Show every version that objects had, with what changed and who changed it, as 'kubecdc tail --diff' does. Copies on the
bus and records that came late are left out. Gaps of the record are shown where they are. "inferred": no event says so,
but a later snapshot shows it, or it stands for several changes.

--field shows only the versions in which the value at a path changed: spec.replicas, data["app.conf"],
spec.ports[0].port, spec.template.spec.containers[app].image.

` + momentHelp + `

` + resourceHelp + `

-o table prints a line for each version, -o wide all fields. -o yaml prints the versions as documents, -o json as a
list. -o name prints each object once. -o jsonpath=TEMPLATE is that of kubectl, of each version in the form of -o json:
'{.time} {.after.spec.replicas}'.

` + certaintyHelp + ` It is that of the end of the span; gaps inside it are listed.`,
		Example: `  kubecdc history deploy/web -n shop
  kubecdc history deploy/web -n shop --field spec.replicas -o table
  kubecdc history deploy,cm,secrets -n shop --since 14:00 --until 14:10
  kubecdc history cm/settings -n shop --since 24h -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.finish(showHistory(cmd.Context(), &f, args, stdout, stderr))
		},
	}
	f.addSelector(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.since, "since", "", "only versions after this `moment` (default: the beginning of the record)")
	fl.StringVar(&f.until, "until", "now", "only versions up to this `moment`")
	fl.StringVar(&f.field, "field", "", "only changes of the value at this `path`")
	f.add(cmd, changeFormats())
	completeWords(cmd, "since", "10m", "1h", "24h")
	return cmd
}

// showHistory prints versions of objects.
func showHistory(ctx context.Context, f *historyFlags, args []string, stdout, stderr io.Writer) error {
	h, to, err := f.historian(args)
	if err != nil {
		return usageError{err}
	}
	if h.q, err = f.ask(ctx, args, stdout, stderr); err != nil {
		return err
	}
	h.q.streams = h.q.stdout.Interactive
	if h.since != nil {
		h.q.record.Since = h.since.Time()
	}
	h.open()
	var scopes []timeline.Scope
	var reading *history.Reading
	if err := h.q.during(ctx, func(ctx context.Context) error {
		scopes, reading, err = h.q.record.Versions(ctx, h.q.wanted, to, h.take)
		return err
	}); err != nil {
		return err
	}
	if h.versions == 0 && !h.q.record.Since.IsZero() {
		if err := h.countEarlier(ctx, to); err != nil {
			return err
		}
	}
	sure := newCertainty(to, scopes, reading)
	if err := h.q.known(ctx, &sure, h.versions); err != nil {
		return err
	}
	if err := h.close(&sure); err != nil {
		return err
	}
	f.pager.wait() // standard error would be drawn over the pager
	h.q.say(&sure)
	if len(h.clusters) > 1 {
		slices.Sort(h.clusters)
		fmt.Fprintf(h.q.stderr, "These are versions of several clusters; --cluster selects one of: %s\n", strings.Join(h.clusters, ", "))
	}
	if h.shown == 0 {
		if h.versions == 0 {
			return h.q.explainNone(ctx, to)
		}
		fmt.Fprintf(h.q.stderr, "No versions found in this span; the record has %d others of these objects.\n", h.versions)
	}
	return f.judge(&sure)
}

// countEarlier counts the versions before --since, which were perhaps not read.
func (h *historian) countEarlier(ctx context.Context, to timeline.Moment) error {
	h.q.record.Since = time.Time{}
	return h.q.during(ctx, func(ctx context.Context) error {
		_, _, err := h.q.record.Versions(ctx, h.q.wanted, to, func(v *timeline.Version, _ *consume.Event) error {
			if v != nil {
				h.versions++
			}
			return nil
		})
		return err
	})
}

// historian parses the flags.
func (f *historyFlags) historian(args []string) (*historian, timeline.Moment, error) {
	h := &historian{output: &f.output, last: map[string]json.RawMessage{}, named: map[string]bool{}}
	if len(args) == 0 {
		return nil, timeline.Moment{}, errors.New("history: name resources (deploy/web, pods, deployments.apps), or all")
	}
	var err error
	if f.field != "" {
		if h.field, err = readFieldPath(f.field); err != nil {
			return nil, timeline.Moment{}, fmt.Errorf("--field %q: %w", f.field, err)
		}
	}
	if f.since != "" {
		since, err := timeline.ParseMoment(f.since, time.Now())
		if err != nil {
			return nil, timeline.Moment{}, fmt.Errorf("--since: %w", err)
		}
		h.since = &since
	}
	to, err := timeline.ParseMoment(f.until, time.Now())
	if err != nil {
		return nil, timeline.Moment{}, fmt.Errorf("--until: %w", err)
	}
	return h, to, nil
}

// historian prints versions while they are read.
type historian struct {
	q      *question
	output *output
	since  *timeline.Moment
	field  fieldPath

	printer *console.Printer
	last    map[string]json.RawMessage // the object after its last version, by cluster and uid
	named   map[string]bool            // the objects printed so far, with -o name
	gaps    []gap

	clusters []string

	versions, shown int // all versions, and those printed
}

// gap is the JSON form of a gap.
type gap struct {
	Time  time.Time       `json:"time"`
	Scope string          `json:"scope"`
	Gap   *consume.Stream `json:"gap"`
}

// versionOfObject is the JSON form of a version.
type versionOfObject struct {
	Time            time.Time        `json:"time"`
	Op              consume.Op       `json:"op"`
	Cluster         string           `json:"cluster,omitempty"`
	Resource        string           `json:"resource"`
	Namespace       string           `json:"namespace,omitempty"`
	Name            string           `json:"name"`
	UID             string           `json:"uid"`
	ResourceVersion string           `json:"resourceVersion,omitempty"`
	History         uint32           `json:"history,omitempty"`
	Event           string           `json:"event,omitempty"` // its ID
	ChangedBy       []consume.Change `json:"changedBy,omitempty"`
	Inferred        bool             `json:"inferred,omitempty"`
	Skipped         int              `json:"skipped,omitempty"`
	Truncated       []string         `json:"truncated,omitempty"`
	Before          json.RawMessage  `json:"before,omitempty"`
	After           json.RawMessage  `json:"after,omitempty"`
}

func (h *historian) open() {
	o := console.Options{Wide: h.output.wide(), Reads: true}
	if h.output.format != tableFormat {
		o.View = console.Diff
	}
	h.printer = console.New(h.q.stdout, o)
}

// take prints a version or a gap.
func (h *historian) take(v *timeline.Version, e *consume.Event) error {
	in := h.since == nil || !h.since.Includes(e)
	if v == nil {
		return h.takeGap(e, in)
	}
	h.versions++
	if !slices.Contains(h.clusters, v.Cluster) {
		h.clusters = append(h.clusters, v.Cluster)
	}
	key := v.Source + " " + v.UID
	before := v.Before
	if before == nil {
		before = h.last[key]
	}
	if v.Gone() {
		delete(h.last, key)
	} else {
		h.last[key] = v.After
	}
	if !in || !h.q.labelled(before) && !h.q.labelled(v.After) {
		return nil
	}
	after := v.After
	if h.field != nil {
		before, after = h.field.of(before), h.field.of(after)
		if bytes.Equal(before, after) {
			return nil
		}
	}
	h.shown++
	return h.show(v, e, before, after)
}

func (h *historian) takeGap(e *consume.Event, in bool) error {
	if !in {
		return nil
	}
	h.gaps = append(h.gaps, gap{e.Time, e.Scope, e.Stream})
	switch h.output.format {
	case jsonFormat, yamlFormat, nameFormat, jsonPathFormat:
		return nil
	}
	return h.printer.Print(e)
}

func (h *historian) show(v *timeline.Version, e *consume.Event, before, after json.RawMessage) error {
	switch h.output.format {
	case jsonFormat, jsonPathFormat:
		shown := versionOfObject{
			v.Time, v.Op, v.Cluster, v.Resource, v.Namespace, v.Name, v.UID, v.ResourceVersion, v.History, v.ID, v.ChangedBy, v.Inferred,
			v.Skipped, v.Truncated, before, after,
		}
		if h.output.format == jsonPathFormat {
			text, err := h.output.execute(shown)
			if err != nil {
				return err
			}
			return h.q.write(append(text, '\n'))
		}
		head := "{\n\"versions\": [\n"
		if h.shown > 1 {
			head = ",\n"
		}
		raw, err := json.Marshal(shown)
		if err != nil {
			return err
		}
		return h.q.write(append([]byte(head), raw...))
	case yamlFormat:
		return h.document(v, after)
	case nameFormat:
		key := strings.Join([]string{v.Cluster, v.Resource, v.Namespace, v.Name}, " ")
		if h.named[key] {
			return nil
		}
		h.named[key] = true
		return h.q.write([]byte(kindName(v) + "\n"))
	}
	shown := eventOf(v, v.Op)
	shown.Data.ChangedBy, shown.Data.Inferred, shown.Data.Skipped, shown.Data.Truncated = v.ChangedBy, v.Inferred, v.Skipped, v.Truncated
	shown.DataRef = v.DataRef
	shown.Data.Before, shown.Data.After = before, after
	if h.field == nil && before == nil {
		shown.Data.Patch = v.Patch
	}
	if v.Op == consume.Read && before != nil { // the change is inferred from a snapshot
		shown.Op, shown.Data.Op, shown.Data.Inferred = consume.Updated, consume.Updated, true
	}
	shown.Time = e.Time
	return h.printer.Print(shown)
}

// document prints a version as a YAML document, after a comment that identifies it.
func (h *historian) document(v *timeline.Version, after json.RawMessage) error {
	var b bytes.Buffer
	if h.shown > 1 {
		b.WriteString("---\n")
	}
	fmt.Fprintf(&b, "# %s %s %s %s rv:%s by %s\n", v.Time.Local().Format(time.RFC3339), opWord(v.Op), v.Resource, console.Printable(objectName(v)),
		v.ResourceVersion, managers(v))
	if after != nil {
		text, err := yaml.JSONToYAML(after)
		if err != nil {
			return fmt.Errorf("%s %s: %w", v.Resource, objectName(v), err)
		}
		b.Write(text)
	}
	return h.q.write(b.Bytes())
}

// close prints the end of the output, after the versions.
func (h *historian) close(c *certainty) error {
	if h.output.format != jsonFormat {
		return h.printer.Finish()
	}
	raw, err := json.Marshal(struct {
		Gaps    []gap      `json:"gaps"`
		Kubecdc *certainty `json:"kubecdc"`
	}{append([]gap{}, h.gaps...), c})
	if err != nil {
		return err
	}
	head := "\n],\n"
	if h.shown == 0 {
		head = "{\n\"versions\": [],\n"
	}
	return h.q.write(append(append([]byte(head), raw[1:]...), '\n'))
}

// write writes to standard output. At a terminal, it makes control characters harmless.
func (q *question) write(text []byte) error {
	if q.stdout.Interactive {
		text = console.AppendHarmless(nil, text)
	}
	_, err := q.stdout.Write(text)
	return err
}
