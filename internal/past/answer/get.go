package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/internal/object/yamltext"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
)

// Get prints the objects that existed at a moment.
func (q *Question) Get(ctx context.Context, at timeline.Moment) error {
	return q.get(ctx, at, q.printObjects)
}

// GetForApply prints the objects that existed at a moment as YAML, without what the server fills
// in. agent is the configuration of the agent that wrote the record, nil if it is not known. The
// error names the objects that it omits: their values are redacted, or agent may have removed some.
// toNamespace is the namespace of the manifests, "": that of each object.
func (q *Question) GetForApply(
	ctx context.Context, at timeline.Moment, agent *config.Config, toNamespace string,
) error {
	return q.get(ctx, at, func(objects []*timeline.Version, _ *assessment) error {
		return q.printForApply(objects, agent, toNamespace)
	})
}

func (q *Question) get(
	ctx context.Context, at timeline.Moment, show func([]*timeline.Version, *assessment) error,
) error {
	states, err := q.states(ctx, at)
	if err != nil {
		return err
	}
	s := &states[0]
	q.say(&s.sure)
	if err := show(s.objects, &s.sure); err != nil {
		return err
	}
	if len(s.objects) == 0 {
		if err := q.explainNone(ctx, at); err != nil {
			return err
		}
	}
	return q.judge(&s.sure)
}

// state is a state with the objects that are asked for.
type state struct {
	*timeline.State
	objects []*timeline.Version
	sure    assessment
}

// states reads the states at moments. It returns an error if the record has no answer for one of
// them, or several clusters.
func (q *Question) states(ctx context.Context, moments ...timeline.Moment) ([]state, error) {
	var read timeline.States
	var reading *record.Reading
	if err := q.During(ctx, func(ctx context.Context) (err error) {
		read, reading, err = q.Record.States(ctx, q.Wanted, moments...)
		return err
	}); err != nil {
		return nil, err
	}
	states, clusters := make([]state, len(read)), Clusters{}
	for k, s := range read {
		sure := assess(moments[k], s.Scopes(), reading)
		objects := q.objects(s, &sure)
		if err := q.known(ctx, &sure, len(objects)); err != nil {
			return nil, err
		}
		clusters.add(objects)
		states[k] = state{s, objects, sure}
	}
	return states, clusters.One("objects", "cluster")
}

// objects returns the objects of a state that match the label selector. It records in c the objects
// whose content is missing, and omits resources without an answer at the moment.
func (q *Question) objects(s *timeline.State, c *assessment) []*timeline.Version {
	var out []*timeline.Version
	for _, v := range s.Objects() {
		switch {
		case c.isOfOtherEtcd(v):
		case v.After == nil:
			c.AddIncomplete(certainty.ObjectName(v.Resource, v.Namespace, v.Name), "existed")
		case q.labelled(v.After):
			out = append(out, v)
		}
	}
	return out
}

func objectName(v *timeline.Version) string {
	if v.Namespace == "" {
		return v.Name
	}
	return v.Namespace + "/" + v.Name
}

// printObjects prints objects in the selected format.
func (q *Question) printObjects(objects []*timeline.Version, c *assessment) error {
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
			b.WriteString(kindName(v) + "\n")
		}
		_, err := io.WriteString(q.Stdout, b.String())
		return err
	}
	return q.printTable(objects, c.time)
}

// kindName returns the name in the form of kubectl get -o name.
func kindName(v *timeline.Version) string {
	_, group, _ := strings.Cut(v.Resource, ".")
	return kinds.ObjectName(v.Kind, group, v.Name)
}

// printList prints a List as JSON, one object at a time: the text is several times as large as the
// state. Field kubecdc has the certainty.
func (q *Question) printList(objects []*timeline.Version, c *assessment) error {
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
			return fmt.Errorf("%s %s: %w", v.Resource, objectName(v), err)
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
	case q.Wanted.One() && len(items) == 1:
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
			return fmt.Errorf("%s %s: %w", v.Resource, objectName(v), err)
		}
		b.Write(text)
	}
	_, err := q.Stdout.Write(b.Bytes())
	return err
}
