package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/object/yamltext"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Span selects the versions of History.
type Span struct {
	Since *timeline.Moment // nil for the beginning of the record
	Until timeline.Moment
	// Events shows the Kubernetes Events about the objects, and about what they own.
	Events bool
	Filters
}

// History prints the versions of objects while it reads them.
func (q *Question) History(ctx context.Context, s *Span) error {
	if s.Since != nil {
		q.Record.Since = s.Since.Time()
	}
	if q.Record.HasSeveralLogs() && q.Record.Since.IsZero() {
		fmt.Fprintln(q.Stderr,
			"This record has no index of objects, so all of it is read; --since with a time reads less.")
	}
	h := &historian{
		q:        q,
		Span:     s,
		last:     map[objectKey]json.RawMessage{},
		named:    map[string]bool{},
		clusters: Clusters{},
		paths:    newSought(&s.Filters),
	}
	o := console.Options{Wide: q.Format.Wide(), Reads: true, Late: true, Cluster: h.clusterOf}
	if q.Format.Name != printer.Table {
		o.View = console.Diff
	}
	h.printer = console.New(q.Stdout, o)
	asked := q.Wanted
	if s.Events {
		var err error
		h.events, asked, err = q.planEvents(ctx, s)
		if err != nil {
			return err
		}
	}
	q.streams = q.Stdout.Interactive
	var scopes []certainty.Scope
	var reading *record.Reading
	if err := q.During(ctx, func(ctx context.Context) (err error) {
		q.Record.OnLate = h.takeLate
		defer func() { q.Record.OnLate = nil }()
		scopes, reading, err = q.Record.Versions(ctx, asked, s.Since, s.Until, h.take)
		return err
	}); err != nil {
		return err
	}
	if h.versions == 0 && !q.Record.Since.IsZero() {
		if err := h.countEarlier(ctx); err != nil {
			return err
		}
	}
	sure, err := h.assess(ctx, scopes, reading)
	if err != nil {
		return err
	}
	var begin assessment
	if s.Since != nil {
		begin = assess(*s.Since, reading.Begin, &record.Reading{
			Began:      reading.Began,
			Only:       reading.Only,
			Unreadable: reading.Unreadable,
		})
		sure.Since = &begin.Answer
	}
	if err := h.close(&sure); err != nil {
		return err
	}
	q.Pager.Wait() // standard error would be drawn over the pager
	if sure.Since != nil && begin.Certainty != certainty.Exact {
		q.say(&begin)
	}
	q.say(&sure)
	h.sayCounts(q.Stderr, reading.LateUnknown)
	h.sayGaps()
	h.sayHidden()
	h.sayEvents(&sure)
	if len(h.clusters) > 1 {
		fmt.Fprintf(q.Stderr,
			"These are versions of several clusters (lines without a cluster: %s); %s selects one of: %s\n",
			h.clusters.label(h.first), h.clusters.flags("cluster"), strings.Join(h.clusters.labels(), ", "))
	}
	if h.shown == 0 {
		if h.versions == 0 {
			if err := q.explainNone(ctx, s.Until); err != nil {
				return err
			}
			return q.judge(&sure)
		}
		if h.hidden.total() == 0 {
			fmt.Fprintf(q.Stderr, "No versions found in this span; the record has %d others of these objects.\n",
				h.versions)
		}
	}
	if err := h.paths.missing(); err != nil {
		return err
	}
	return q.judge(&sure)
}

// assess returns how certain the answer is. It returns an error if the record has none of the
// requested resources.
func (h *historian) assess(
	ctx context.Context, scopes []certainty.Scope, reading *record.Reading,
) (assessment, error) {
	sure := assess(h.Until, scopes, reading)
	if h.events == nil {
		err := h.q.known(ctx, &sure, h.versions)
		return sure, err
	}
	isAsked := func(s certainty.Scope) bool { return h.q.Wanted.Resources == nil || h.q.Wanted.Has(s.Resource) }
	others := slices.DeleteFunc(slices.Clone(scopes), func(s certainty.Scope) bool { return !isAsked(s) })
	without := assess(h.Until, others, reading)
	if err := h.q.known(ctx, &without, h.versions); err != nil {
		return sure, err
	}
	for _, missing := range without.Scopes[len(others):] {
		sure.AddScope(missing)
	}
	h.assessEvents(&sure)
	return sure, nil
}

// historian prints versions while they are read.
type historian struct {
	*Span
	breaks

	q *Question

	printer *console.Printer
	last    map[objectKey]json.RawMessage // the object after its last version
	named   map[string]bool               // the objects printed so far, with -o name
	hidden  hidden
	paths   sought      // that the flags name
	events  *happenings // nil: they are not asked for

	clusters Clusters           // of the versions so far
	first    consume.ClusterKey // the first of them: lines name no cluster as long as there is no other

	versions, shown int // all versions, and those printed
	documents       int // of YAML
}

// objectKey identifies an object. Those of two resources, or of two clusters, may have the same
// UID.
type objectKey struct {
	cluster       consume.ClusterKey
	resource, uid string
}

// gap is the JSON form of a gap.
type gap struct {
	Time       time.Time       `json:"time"`
	Cluster    string          `json:"cluster,omitempty"`
	ClusterUID string          `json:"clusterUID,omitempty"`
	Scope      string          `json:"scope"`
	Gap        *consume.Stream `json:"gap"`
}

func newGap(e *consume.Event) gap { return gap{e.Time, e.Cluster, e.ClusterUID, e.Scope, e.Stream} }

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

// countEarlier counts the versions before Since, which were perhaps not read.
func (h *historian) countEarlier(ctx context.Context) error {
	h.q.Record.Since = time.Time{}
	return h.q.During(ctx, func(ctx context.Context) error {
		_, _, err := h.q.Record.Versions(ctx, h.q.Wanted, nil, h.Until,
			func(v *timeline.Version, _ *consume.Event) error {
				if v != nil {
					h.versions++
				}
				return nil
			})
		return err
	})
}

// take prints a version or a gap.
func (h *historian) take(v *timeline.Version, e *consume.Event) error {
	in := h.Since == nil || !h.Since.Includes(e)
	if v == nil {
		return h.takeGap(e, in)
	}
	if h.events != nil && isOfEvents(v.Resource) {
		return h.takeEvent(v, e, in)
	}
	h.versions++
	h.meet(e)
	key := objectKey{v.ClusterKey(), v.Resource, v.UID}
	before := v.Before
	if before == nil {
		before = h.last[key]
	}
	if v.Gone() {
		delete(h.last, key)
	} else {
		h.last[key] = v.After
	}
	if !h.q.labelled(before) && !h.q.labelled(v.After) {
		return nil
	}
	h.paths.look(v, before)
	if !in || h.hides(v, before) {
		return nil
	}
	after := v.After
	if h.Field != nil {
		c := h.Field.compare(before, after)
		if !c.isChange {
			h.hidden.Field++
			return nil
		}
		before, after = c.before, c.after
	}
	h.shown++
	return h.show(v, e, before, after)
}

// meet notes the cluster of an event.
func (h *historian) meet(e *consume.Event) {
	if len(h.clusters) == 0 {
		h.first = e.ClusterKey()
	}
	h.clusters[e.ClusterKey()] = e.Cluster
}

// clusterOf returns what the line of an event says of its cluster: nothing if all lines so far are
// of one.
func (h *historian) clusterOf(e *consume.Event) string {
	if len(h.clusters) < 2 {
		return ""
	}
	return h.clusters.label(e.ClusterKey())
}

func (h *historian) takeGap(e *consume.Event, in bool) error {
	if !in {
		return nil
	}
	h.meet(e)
	if h.events != nil && isOfEvents(e.GroupResource()) && e.Stream.Reason != consume.ReasonContentChanged {
		h.events.gaps = append(h.events.gaps, e)
	}
	h.gaps = append(h.gaps, newGap(e))
	if h.q.Format.Name == printer.JSON || h.gapsApart() {
		return nil
	}
	return h.printer.Print(e)
}

// gapsApart reports whether the format has no place for gaps.
func (h *historian) gapsApart() bool {
	return slices.Contains([]string{printer.YAML, printer.Name, printer.JSONPath}, h.q.Format.Name)
}

// sayGaps prints the gaps and the late spans on standard error if the format has no place for them.
func (h *historian) sayGaps() {
	if !h.gapsApart() {
		return
	}
	h.sayEach(h.q.Stderr, func(g *gap) string {
		if len(h.clusters) > 1 {
			return g.Cluster + " " + strings.TrimSpace(g.ClusterUID+" "+g.Scope)
		}
		return g.Scope
	})
}

func (h *historian) show(v *timeline.Version, e *consume.Event, before, after json.RawMessage) error {
	switch h.q.Format.Name {
	case printer.JSON, printer.JSONPath:
		shown := versionOfObject{
			v.Time, v.Op, v.Cluster, v.ClusterUID, v.Resource, v.Namespace, v.Name, v.UID, v.ResourceVersion, v.History,
			v.ID, v.ChangedBy, v.Inferred,
			v.Skipped, v.Truncated, v.Redacted(), before, after,
		}
		if h.q.Format.Name == printer.JSONPath {
			text, err := h.q.Format.Encode(shown, "")
			if err != nil {
				return err
			}
			_, err = h.q.Stdout.Write(append(text, '\n'))
			return err
		}
		head := "{\n\"versions\": [\n"
		if h.shown > 1 {
			head = ",\n"
		}
		raw, err := json.Marshal(shown)
		if err != nil {
			return err
		}
		_, err = h.q.Stdout.Write(append([]byte(head), raw...))
		return err
	case printer.YAML:
		return h.document(v, e, after)
	case printer.Name:
		key := strings.Join([]string{h.clusters.label(v.ClusterKey()), v.Resource, v.Namespace, v.Name}, " ")
		if h.named[key] {
			return nil
		}
		h.named[key] = true
		_, err := fmt.Fprintln(h.q.Stdout, kindName(v))
		return err
	}
	shown := eventOf(v, v.Op)
	shown.Data.ChangedBy = v.ChangedBy
	shown.Data.Inferred = v.Inferred
	shown.Data.Skipped = v.Skipped
	shown.Data.Truncated = v.Truncated
	shown.DataRef, shown.Data.Redacted = v.DataRef, redactedOf(v)
	shown.Data.Before, shown.Data.After = before, after
	if h.Field == nil && before == nil {
		shown.Data.Patch = v.Patch
	}
	if v.Op == consume.Read && before != nil { // the change is inferred from a snapshot
		shown.Op = consume.Updated
		shown.Data.Op = consume.Updated
		shown.Data.Inferred = true
	}
	shown.Time = e.Time
	return h.printer.Print(shown)
}

// document prints a version as a YAML document, after a comment that identifies it.
func (h *historian) document(v *timeline.Version, e *consume.Event, after json.RawMessage) error {
	head := fmt.Sprintf("%s %s %s rv:%s by %s", opWord(v.Op), v.Resource, console.Printable(objectName(v)),
		v.ResourceVersion, managers(v))
	if v.Redacted() {
		head += " (redacted)"
	}
	return h.yamlDocument(v, e, head, after)
}

// yamlDocument prints a YAML document, after a comment that begins with the time and says of which
// cluster it is, if there are several.
func (h *historian) yamlDocument(v *timeline.Version, e *consume.Event, head string, after json.RawMessage) error {
	var b bytes.Buffer
	h.documents++
	if h.documents > 1 {
		b.WriteString("---\n")
	}
	of := ""
	if cluster := h.clusterOf(e); cluster != "" {
		of = " in " + console.Printable(cluster)
	}
	fmt.Fprintf(&b, "# %s %s%s\n", v.Time.Local().Format(time.RFC3339), head, of)
	if after != nil {
		text, err := yamltext.FromJSON(after)
		if err != nil {
			return fmt.Errorf("%s %s: %w", v.Resource, objectName(v), err)
		}
		b.Write(text)
	}
	_, err := h.q.Stdout.Write(b.Bytes())
	return err
}

// close prints the end of the output, after the versions.
func (h *historian) close(c *assessment) error {
	if h.q.Format.Name != printer.JSON {
		return h.printer.Finish()
	}
	raw, err := json.Marshal(struct {
		Gaps    []gap         `json:"gaps"`
		Late    []late        `json:"late"`
		Events  *[]*happening `json:"events,omitempty"`
		Hidden  *hidden       `json:"hidden,omitempty"`
		Kubecdc *assessment   `json:"kubecdc"`
	}{append([]gap{}, h.gaps...), append([]late{}, h.late...), h.listEvents(), h.hiddenByFilters(), c})
	if err != nil {
		return err
	}
	head := "\n],\n"
	if h.shown == 0 {
		head = "{\n\"versions\": [],\n"
	}
	_, err = h.q.Stdout.Write(append(append([]byte(head), raw[1:]...), '\n'))
	return err
}
