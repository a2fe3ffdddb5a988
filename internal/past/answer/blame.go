package answer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Blame prints the author of each line of an object at a moment.
func (q *Question) Blame(ctx context.Context, at timeline.Moment) error {
	if !q.Wanted.One() {
		return UsageError{errors.New("blame: name one object (kubecdc blame deploy/web -n shop)")}
	}
	var b timeline.Blame
	var scopes []certainty.Scope
	var reading *record.Reading
	var last *timeline.Version
	clusters, places := Clusters{}, map[place]bool{}
	versions := 0
	var between breaks
	var first time.Time
	q.Record.OnLate = func(all []timeline.Late) error {
		between.addLate(all)
		return nil
	}
	defer func() { q.Record.OnLate = nil }()
	if err := q.During(ctx, func(ctx context.Context) (err error) {
		scopes, reading, err = q.Record.Versions(ctx, q.Wanted, nil, at,
			func(v *timeline.Version, e *consume.Event) error {
				if v == nil {
					between.gaps = append(between.gaps, newGap(e))
					return nil
				}
				if versions == 0 || v.Time.Before(first) {
					first = v.Time
				}
				versions++
				last = v
				clusters[v.ClusterKey()] = v.Cluster
				places[place{v.ClusterKey(), v.Namespace}] = true
				return b.Add(v)
			})
		return err
	}); err != nil {
		return err
	}
	sure := assess(at, scopes, reading)
	if err := q.known(ctx, &sure, versions); err != nil {
		return err
	}
	if len(places) > 1 {
		return UsageError{
			fmt.Errorf(
				"blame: the record has several objects of this name: add --namespace and %s for one of (cluster namespace): %s",
				clusters.flags("cluster"), strings.Join(clusters.places(places), "; ")),
		}
	}
	lines, err := b.Lines()
	if err != nil {
		return err
	}
	between.drop(first)
	for i := range lines {
		lines[i].Origin = between.withTime(lines[i].Origin)
	}
	q.say(&sure)
	between.sayCounts(q.Stderr, false)
	if reading.LateUnknown {
		fmt.Fprintln(q.Stderr,
			"  a change may be earlier than its time, if an agent found it late: 'kubecdc history --since' shows it")
	}
	between.sayEach(q.Stderr, func(g *gap) string { return g.Scope })
	if len(lines) == 0 {
		return q.explainNone(ctx, at)
	}
	switch q.Format.Name {
	case printer.JSON, printer.YAML, printer.JSONPath:
		out := newBlamed(lines, &between, &sure)
		out.Redacted = last.Redacted()
		err = q.printValue(out)
	case printer.Name:
		_, err = fmt.Fprintln(q.Stdout, kindName(last))
	default:
		err = q.printBlame(lines)
		if last.Redacted() {
			fmt.Fprintln(q.Stderr, "redacted: the record does not have all values of this object")
		}
	}
	return errors.Join(err, q.judge(&sure))
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
		out = append(out, c.label(p.cluster)+" "+p.namespace)
	}
	slices.Sort(out)
	return out
}

// blamed is the JSON form of the answer.
type blamed struct {
	Lines    []blamedLine `json:"lines"`
	Redacted bool         `json:"redacted,omitempty"` // the record does not have all values of the object
	Gaps     []gap        `json:"gaps"`
	Late     []late       `json:"late"`
	Kubecdc  *assessment  `json:"kubecdc"`
}

type blamedLine struct {
	Text            string           `json:"text"`
	Time            time.Time        `json:"time,omitzero"`
	ResourceVersion string           `json:"resourceVersion,omitempty"`
	ChangedBy       []consume.Change `json:"changedBy,omitempty"`
	// the version of this time set the value; otherwise it was set by then
	Exact bool      `json:"exact"`
	Since time.Time `json:"since,omitzero"` // if not exact: it was set after this time
}

func newBlamed(lines []timeline.Line, b *breaks, c *assessment) blamed {
	out := blamed{
		Lines:   []blamedLine{},
		Gaps:    append([]gap{}, b.gaps...),
		Late:    append([]late{}, b.late...),
		Kubecdc: c,
	}
	for _, l := range lines {
		line := blamedLine{Text: l.Text}
		if o := l.Origin; o != nil {
			line.Time = o.Version.Time
			line.ResourceVersion = o.Version.ResourceVersion
			line.ChangedBy = o.By
			line.Exact = o.Exact
			line.Since = o.Since
		}
		out.Lines = append(out.Lines, line)
	}
	return out
}

// printBlame prints the lines with their origins. At a terminal, the origins are dim.
func (q *Question) printBlame(lines []timeline.Line) error {
	var columns strings.Builder
	w := tabwriter.NewWriter(&columns, 0, 0, 1, ' ', 0)
	for _, l := range lines {
		when := ""
		who := "?"
		rv := ""
		if o := l.Origin; o != nil {
			when, rv = o.Version.Time.Local().Format(time.RFC3339), o.Version.ResourceVersion
			if !o.Exact {
				when = "<=" + when
			}
			if len(o.By) > 0 {
				who = managers(&timeline.Version{ChangedBy: o.By})
			}
		}
		fmt.Fprintf(w, "%s\t%s\t", when, who)
		if q.Format.Wide() {
			fmt.Fprintf(w, "rv:%s\t", console.Printable(rv))
		}
		fmt.Fprintln(w, "|")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var out []byte
	origins := strings.Split(columns.String(), "\n")
	for k, l := range lines {
		out = q.Stdout.Append(out, terminal.Dim, origins[k])
		out = append(append(append(out, ' '), console.Printable(l.Text)...), '\n')
	}
	_, err := q.Stdout.Write(out)
	return err
}
