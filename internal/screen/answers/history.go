package answers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/object/yamltext"
	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// History prints the versions of objects while it reads them.
func (q *Question) History(ctx context.Context, s *answer.Span) error {
	r := q.NewSpanReader(s)
	if r.ReadsAll() {
		fmt.Fprintln(q.Stderr,
			"This record has no index of objects, so all of it is read; --since with a time reads less.")
	}
	l := q.newLister(r)
	if s.Events {
		if err := q.planEvents(ctx, r); err != nil {
			return err
		}
	}
	q.Streams = q.Stdout.Interactive
	if err := r.Read(ctx, l); err != nil {
		return err
	}
	if err := l.printEnd(&r.Sure); err != nil {
		return err
	}
	q.Pager.Wait() // standard error would be drawn over the pager
	if r.Begin != nil && r.Begin.Certainty != certainty.Exact {
		q.SayCertainty(r.Begin)
	}
	q.SayCertainty(&r.Sure)
	q.sayLines(r.Counts(r.LateUnknown))
	l.sayGaps()
	if text := r.HiddenWords(); text != "" {
		fmt.Fprintln(q.Stderr, text)
	}
	l.sayEvents()
	if len(r.Clusters) > 1 {
		fmt.Fprintf(q.Stderr,
			"These are versions of several clusters (lines without a cluster: %s); %s selects one of: %s\n",
			r.Clusters.Label(r.First), r.Clusters.Flags("cluster"), strings.Join(r.Clusters.Labels(), ", "))
	}
	if r.Shown == 0 {
		if r.Versions == 0 {
			if err := q.explainNone(ctx, s.Until); err != nil {
				return err
			}
			return q.CheckExact(&r.Sure)
		}
		if r.Hidden.Total() == 0 {
			fmt.Fprintf(q.Stderr, "No versions found in this span; the record has %d others of these objects.\n",
				r.Versions)
		}
	}
	if err := r.CheckPaths(); err != nil {
		return err
	}
	return q.CheckExact(&r.Sure)
}

// planEvents reads what is needed to select the Events of a history.
func (q *Question) planEvents(ctx context.Context, r *answer.SpanReader) error {
	if err := q.CanShowEvents(); err != nil {
		return err
	}
	if q.Format.Name == printer.Name || q.Format.Name == printer.JSONPath {
		return answer.UsageError{
			Err: fmt.Errorf("--with-events: -o %s has no place for Events: use -o json",
				strings.TrimSuffix(q.Format.Name, "=")),
		}
	}
	return r.PlanEvents(ctx)
}

// lister prints the versions of a history while they are read.
type lister struct {
	*answer.SpanReader

	q       *Question
	printer *console.Printer

	named     map[string]bool     // the objects printed so far, with -o name
	events    []*answer.Happening // of JSON
	documents int                 // of YAML
}

func (q *Question) newLister(r *answer.SpanReader) *lister {
	o := console.Options{
		Wide:    q.Format.IsWide(),
		Reads:   true,
		Late:    true,
		Cluster: r.ClusterOf,
	}
	if q.Format.Name != printer.Table {
		o.View = console.Diff
	}
	return &lister{
		SpanReader: r,
		q:          q,
		printer:    console.New(q.Stdout, o),
		named:      map[string]bool{},
	}
}

// versionOfObject is the JSON form of a version.
type versionOfObject struct {
	Time            time.Time        `json:"time"`
	Op              consume.Op       `json:"op"`
	Cluster         string           `json:"cluster,omitempty"`
	ClusterUID      string           `json:"clusterUID,omitempty"`
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
	Redacted        bool             `json:"redacted,omitempty"` // values of After are removed or replaced
	Before          json.RawMessage  `json:"before,omitempty"`
	After           json.RawMessage  `json:"after,omitempty"`
}

// hasNoPlaceForGaps reports whether the format has no place for gaps.
func (l *lister) hasNoPlaceForGaps() bool {
	return slices.Contains([]string{printer.YAML, printer.Name, printer.JSONPath}, l.q.Format.Name)
}

// sayGaps prints the gaps and the late spans on standard error if the format has no place for them.
func (l *lister) sayGaps() {
	if !l.hasNoPlaceForGaps() {
		return
	}
	l.q.sayLines(l.EachLine(func(g *answer.Gap) string {
		if len(l.Clusters) > 1 {
			return g.Cluster + " " + strings.TrimSpace(g.ClusterUID+" "+g.Scope)
		}
		return g.Scope
	}))
}

// ShowGap implements answer.Shower.
func (l *lister) ShowGap(e *consume.Event) error {
	if l.q.Format.Name == printer.JSON || l.hasNoPlaceForGaps() {
		return nil
	}
	return l.printer.Print(e)
}

// ShowLate implements answer.Shower.
func (l *lister) ShowLate(g *answer.LateGroup) error {
	if l.q.Format.Name == printer.JSON || l.hasNoPlaceForGaps() {
		return nil
	}
	names, word := g.Names()
	line := &console.Late{Time: g.Cause.To.Time, Scopes: names, Parts: []string{
		g.Cause.AbsenceWords(word), answer.FoundLate,
	}}
	if len(l.Clusters) > 1 {
		line.Cluster = l.Clusters.Label(g.ClusterKey)
	}
	return l.printer.PrintLate(line)
}

// ShowVersion implements answer.Shower.
func (l *lister) ShowVersion(v *timeline.Version, e *consume.Event, before, after json.RawMessage) error {
	switch l.q.Format.Name {
	case printer.JSON, printer.JSONPath:
		shown := versionOfObject{
			v.Time, v.Op, v.Cluster, v.ClusterUID, v.Resource, v.Namespace, v.Name, v.UID, v.ResourceVersion, v.History,
			v.ID, v.ChangedBy, v.Inferred,
			v.Skipped, v.Truncated, v.Redacted(), before, after,
		}
		if l.q.Format.Name == printer.JSONPath {
			text, err := l.q.Format.Encode(shown, "")
			if err != nil {
				return err
			}
			_, err = l.q.Stdout.Write(append(text, '\n'))
			return err
		}
		head := "{\n\"versions\": [\n"
		if l.Shown > 1 {
			head = ",\n"
		}
		raw, err := json.Marshal(shown)
		if err != nil {
			return err
		}
		_, err = l.q.Stdout.Write(append([]byte(head), raw...))
		return err
	case printer.YAML:
		return l.printDocument(v, e, after)
	case printer.Name:
		key := strings.Join([]string{l.Clusters.Label(v.ClusterKey()), v.Resource, v.Namespace, v.Name}, " ")
		if l.named[key] {
			return nil
		}
		l.named[key] = true
		_, err := fmt.Fprintln(l.q.Stdout, answer.KindName(v))
		return err
	}
	shown := answer.EventOf(v, v.Op)
	shown.Data.ChangedBy = v.ChangedBy
	shown.Data.Inferred = v.Inferred
	shown.Data.Skipped = v.Skipped
	shown.Data.Truncated = v.Truncated
	shown.DataRef, shown.Data.Redacted = v.DataRef, answer.RedactedOf(v)
	shown.Data.Before, shown.Data.After = before, after
	if l.Field == nil && before == nil {
		shown.Data.Patch = v.Patch
	}
	if v.Op == consume.Read && before != nil { // the change is inferred from a snapshot
		shown.Op = consume.Updated
		shown.Data.Op = consume.Updated
		shown.Data.Inferred = true
	}
	shown.Time = e.Time
	return l.printer.Print(shown)
}

// printDocument prints a version as a YAML document, after a comment that identifies it.
func (l *lister) printDocument(v *timeline.Version, e *consume.Event, after json.RawMessage) error {
	head := fmt.Sprintf("%s %s %s rv:%s by %s", cmp.Or(v.Op.Word(), string(v.Op)), v.Resource,
		console.Printable(answer.ObjectName(v)), v.ResourceVersion, managers(v))
	if v.Redacted() {
		head += " (redacted)"
	}
	return l.printYAML(v, e, head, after)
}

// printYAML prints a YAML document after a comment, which begins with the time. If there are
// several clusters, the comment names the one of the document.
func (l *lister) printYAML(v *timeline.Version, e *consume.Event, head string, after json.RawMessage) error {
	var b bytes.Buffer
	l.documents++
	if l.documents > 1 {
		b.WriteString("---\n")
	}
	of := ""
	if cluster := l.ClusterOf(e); cluster != "" {
		of = " in " + console.Printable(cluster)
	}
	fmt.Fprintf(&b, "# %s %s%s\n", v.Time.Local().Format(time.RFC3339), head, of)
	if after != nil {
		text, err := yamltext.FromJSON(after)
		if err != nil {
			return fmt.Errorf("%s %s: %w", v.Resource, answer.ObjectName(v), err)
		}
		b.Write(text)
	}
	_, err := l.q.Stdout.Write(b.Bytes())
	return err
}

// printEnd prints the end of the output, after the versions.
func (l *lister) printEnd(c *answer.Assessment) error {
	if l.q.Format.Name != printer.JSON {
		return l.printer.Finish()
	}
	raw, err := json.Marshal(struct {
		Gaps    []answer.Gap         `json:"gaps"`
		Late    []answer.Late        `json:"late"`
		Events  *[]*answer.Happening `json:"events,omitempty"`
		Hidden  *answer.Hidden       `json:"hidden,omitempty"`
		Kubecdc *answer.Assessment   `json:"kubecdc"`
	}{append([]answer.Gap{}, l.Gaps...), append([]answer.Late{}, l.Late...), l.listEvents(), l.HiddenByFilters(), c})
	if err != nil {
		return err
	}
	head := "\n],\n"
	if l.Shown == 0 {
		head = "{\n\"versions\": [],\n"
	}
	_, err = l.q.Stdout.Write(append(append([]byte(head), raw[1:]...), '\n'))
	return err
}
