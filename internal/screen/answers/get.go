package answers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object/yamltext"
	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
)

// Get prints the objects that existed at a moment.
func (q *Question) Get(ctx context.Context, at timeline.Moment) error {
	return q.get(ctx, at, q.printObjects)
}

// GetForApply prints the objects that existed at a moment as YAML, without what the server fills
// in. agent wrote the record, nil if its configuration is not known. The error names the objects
// that it omits: their values are redacted, or agent may have removed some. toNamespace is the
// namespace of the manifests, "": that of each object.
func (q *Question) GetForApply(
	ctx context.Context, at timeline.Moment, agent *answer.Agent, toNamespace string,
) error {
	return q.get(ctx, at, func(objects []*timeline.Version, _ *answer.Assessment) error {
		m, err := answer.MakeManifests(objects, agent, toNamespace)
		if err != nil {
			return err
		}
		if err := q.printDocuments(m.Objects); err != nil {
			return err
		}
		for _, line := range m.Notes() {
			fmt.Fprintln(q.Stderr, line)
		}
		return m.CheckOmitted()
	})
}

func (q *Question) get(
	ctx context.Context, at timeline.Moment, show func([]*timeline.Version, *answer.Assessment) error,
) error {
	states, err := q.States(ctx, at)
	if err != nil {
		return err
	}
	s := &states[0]
	q.SayCertainty(&s.Sure)
	if err := show(s.Asked, &s.Sure); err != nil {
		return err
	}
	if len(s.Asked) == 0 {
		if err := q.explainNone(ctx, at); err != nil {
			return err
		}
	}
	return q.CheckExact(&s.Sure)
}

// explainNone says that there is no object. If one is named, the error says when it existed.
func (q *Question) explainNone(ctx context.Context, at timeline.Moment) error {
	if !q.Wanted.IsOne() {
		fmt.Fprintln(q.Stderr, "No objects found.")
		return nil
	}
	return q.ExplainNone(ctx, at)
}

// printObjects prints objects in the selected format.
func (q *Question) printObjects(objects []*timeline.Version, c *answer.Assessment) error {
	switch q.Format.Name {
	case printer.JSONPath:
		return q.printTemplate(objects)
	case printer.JSON:
		return q.printList(objects, c)
	case printer.YAML:
		return q.printDocuments(objects)
	case printer.Name:
		var b strings.Builder
		for _, v := range objects {
			b.WriteString(answer.KindName(v) + "\n")
		}
		_, err := io.WriteString(q.Stdout, b.String())
		return err
	}
	return q.printTable(objects, c.Time())
}

// printList prints a List as JSON, one object at a time: the text is several times as large as the
// state. Field kubecdc has the certainty.
func (q *Question) printList(objects []*timeline.Version, c *answer.Assessment) error {
	const enough = 64 << 10
	var b bytes.Buffer
	b.WriteString(
		"{\n    \"apiVersion\": \"v1\",\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    },\n    \"items\": [")
	for k, v := range objects {
		if k > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n        ")
		if err := json.Indent(&b, v.After, "        ", "    "); err != nil {
			return fmt.Errorf("%s %s: %w", v.Resource, answer.ObjectName(v), err)
		}
		if b.Len() > enough {
			if _, err := q.Stdout.Write(b.Bytes()); err != nil {
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
	_, err = q.Stdout.Write(b.Bytes())
	return err
}

// printTemplate executes a template: on the object if one is named, otherwise on a List.
func (q *Question) printTemplate(objects []*timeline.Version) error {
	items := []json.RawMessage{}
	for _, v := range objects {
		items = append(items, v.After)
	}
	var data any = map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	switch {
	case q.Wanted.IsOne() && len(items) == 1:
		data = items[0]
	case len(items) == 0:
		return nil
	}
	return q.printValue(data)
}

func (q *Question) printDocuments(objects []*timeline.Version) error {
	var b bytes.Buffer
	for k, v := range objects {
		if k > 0 {
			b.WriteString("---\n")
		}
		if v.Redacted() {
			b.WriteString("# redacted: the record does not have all values of this object\n")
		}
		text, err := yamltext.FromJSON(v.After)
		if err != nil {
			return fmt.Errorf("%s %s: %w", v.Resource, answer.ObjectName(v), err)
		}
		b.Write(text)
	}
	_, err := q.Stdout.Write(b.Bytes())
	return err
}
