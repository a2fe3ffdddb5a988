package apiview

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kubecdc/kubecdc/internal/object"
)

// table writes objects as a Table of meta.k8s.io: what kubectl prints.
type table struct {
	view     *View
	resource *resource
	version  string // v1 or v1beta1
	include  string // of the object: "", None, Metadata, Object
	headless bool   // the columns have been sent
	marked   string // name of the default of the list, "" if there is none
}

func (t *table) writeHead(b *bytes.Buffer, meta *metav1.ListMeta) {
	head := struct {
		metav1.TypeMeta
		Meta    *metav1.ListMeta               `json:"metadata"`
		Columns []metav1.TableColumnDefinition `json:"columnDefinitions"`
	}{metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/" + t.version}, meta, nil}
	if !t.headless {
		head.Columns = t.resource.columns.definitions
	}
	t.headless = true
	raw, _ := json.Marshal(head) // texts and numbers
	b.Write(raw[:len(raw)-1])
	b.WriteString(`,"rows":[`)
}

func (t *table) writeEnd(b *bytes.Buffer) { b.WriteString("]}") }

// writeRow writes the row of an object. The cells are the same in each version.
func (t *table) writeRow(b *bytes.Buffer, body []byte) error {
	r := struct {
		Cells      []any                      `json:"cells"`
		Conditions []metav1.TableRowCondition `json:"conditions,omitempty"`
		Object     json.RawMessage            `json:"object"`
	}{}
	var err error
	r.Cells, r.Conditions, err = t.resource.columns.cells(t.resource.forColumns(body), t.view.clock())
	if err != nil {
		return fmt.Errorf("a row of %s: %w", t.resource, err)
	}
	if t.marked != "" && r.Cells[0] == t.marked {
		r.Cells[0] = t.marked + " (default)"
	}
	switch t.include {
	case "None":
		r.Object = json.RawMessage("null")
	case "Object":
		r.Object, err = t.resource.convert(body)
	default:
		r.Object, err = metadataOf(body, t.version)
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(r)
	b.Write(raw)
	return err
}

// arrangeObjects returns the objects of a list in the order of its rows, and marks the default of
// the list. kube-apiserver does so in lists, and in no other answer.
func (t *table) arrangeObjects(objects []*object.Object) ([]*object.Object, error) {
	switch t.resource.String() {
	case "storageclasses.storage.k8s.io":
		return objects, t.markDefault(objects)
	case "flowschemas.flowcontrol.apiserver.k8s.io":
		return byPrecedence(objects)
	}
	return objects, nil
}

// markDefault finds the default StorageClass of a list, the newest one.
func (t *table) markDefault(objects []*object.Object) error {
	var newest metav1.Time
	return eachAs(objects, func(_ *object.Object, class *metav1.PartialObjectMetadata) {
		isDefault := class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
			class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
		if isDefault && (t.marked == "" || class.CreationTimestamp.After(newest.Time)) {
			t.marked, newest = class.Name, class.CreationTimestamp
		}
	})
}

// byPrecedence returns FlowSchemas in the order in which they are matched.
func byPrecedence(objects []*object.Object) ([]*object.Object, error) {
	precedence := map[*object.Object]int32{}
	err := eachAs(objects, func(o *object.Object, schema *flowcontrolv1.FlowSchema) {
		precedence[o] = schema.Spec.MatchingPrecedence
	})
	sorted := slices.Clone(objects) // by name
	slices.SortStableFunc(sorted, func(a, b *object.Object) int { return cmp.Compare(precedence[a], precedence[b]) })
	return sorted, err
}

// eachAs calls do with each object as a Go type. It leaves out objects with a redacted value whose
// type differs from that of the field.
func eachAs[T any](objects []*object.Object, do func(*object.Object, *T)) error {
	var body []byte
	for _, o := range objects {
		var err error
		body, err = o.AppendJSON(body[:0])
		if err != nil {
			return err
		}
		if typed := new(T); json.Unmarshal(body, typed) == nil {
			do(o, typed)
		}
	}
	return nil
}

// columns are those of one kind.
type columns struct {
	definitions []metav1.TableColumnDefinition
	// cells returns the values of an object. Ages are as of now.
	cells func(body []byte, now time.Time) ([]any, []metav1.TableRowCondition, error)
}

// column returns a definition: the name, the type if it is not string, and 1 for what only -o wide
// shows.
func column(name, kind string, priority int32) metav1.TableColumnDefinition {
	d := metav1.TableColumnDefinition{Name: name, Type: kind, Priority: priority}
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	switch name {
	case "Name":
		d.Format, d.Description = "name", meta["name"]
	case "Age", "Created At":
		d.Description = meta["creationTimestamp"]
	}
	return d
}

// named is the part of an object that every kind has.
type named struct {
	Metadata struct {
		Name              string
		CreationTimestamp metav1.Time
	}
}

// columnsOf returns the columns of a kind: those of the CRD, of kube-apiserver, or name and age.
func columnsOf(k *kind, crd *definition) *columns {
	if k.builtin {
		if c := builtinColumns(k); c != nil {
			return c
		}
		return createdColumns()
	}
	printed := []printerColumn{{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}}
	if crd != nil {
		if v := crd.version(k.apiVersion); v != nil && len(v.AdditionalPrinterColumns) > 0 {
			printed = v.AdditionalPrinterColumns
		}
	}
	return customColumns(printed)
}

// Columns returns the titles of the columns of a resource of Kubernetes in kubectl's tables,
// without the name, and a function for the cells of an object at a moment. It returns nil for other
// resources. wide adds the columns of -o wide.
func Columns(
	apiVersion, plural string, wide bool,
) (titles []string, row func(object []byte, now time.Time) ([]string, error)) {
	k := &kind{apiVersion: apiVersion, plural: plural, builtin: true}
	if group, version, ok := strings.Cut(apiVersion, "/"); ok {
		k.group, k.apiVersion = group, version
	}
	c := builtinColumns(k)
	if c == nil {
		return nil, nil
	}
	var shown []int
	for i, d := range c.definitions {
		if d.Name != "Name" && (wide || d.Priority == 0) {
			shown, titles = append(shown, i), append(titles, strings.ToUpper(d.Name))
		}
	}
	return titles, func(object []byte, now time.Time) ([]string, error) {
		cells, _, err := c.cells(object, now)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, i := range shown {
			text := "<none>" // as kubectl shows null
			if cells[i] != nil {
				text = fmt.Sprint(cells[i])
			}
			out = append(out, text)
		}
		return out, nil
	}
}

// createdColumns are those of kinds for which kube-apiserver has no others.
func createdColumns() *columns {
	return &columns{
		definitions: []metav1.TableColumnDefinition{column("Name", "string", 0), column("Created At", "date", 0)},
		cells: func(body []byte, _ time.Time) ([]any, []metav1.TableRowCondition, error) {
			var o named
			err := json.Unmarshal(body, &o)
			return []any{o.Metadata.Name, o.Metadata.CreationTimestamp.UTC().Format(time.RFC3339)}, nil, err
		},
	}
}

// customColumns are the additionalPrinterColumns of a CRD.
func customColumns(printed []printerColumn) *columns {
	c := &columns{definitions: []metav1.TableColumnDefinition{column("Name", "string", 0)}}
	paths := make([]*jsonpath.JSONPath, len(printed))
	for i, p := range printed {
		d := metav1.TableColumnDefinition{
			Name:        p.Name,
			Type:        p.Type,
			Format:      p.Format,
			Description: p.Description,
			Priority:    p.Priority,
		}
		if d.Description == "" {
			d.Description = "Custom resource definition column (in JSONPath format): " + p.JSONPath
		}
		c.definitions = append(c.definitions, d)
		path := jsonpath.New(p.Name).AllowMissingKeys(true)
		if path.Parse("{"+p.JSONPath+"}") == nil {
			paths[i] = path
		}
	}
	c.cells = func(body []byte, now time.Time) ([]any, []metav1.TableRowCondition, error) {
		var o named
		var content map[string]any
		if err := json.Unmarshal(body, &o); err != nil {
			return nil, nil, err
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		if err := d.Decode(&content); err != nil {
			return nil, nil, err
		}
		cells := []any{o.Metadata.Name}
		for i, p := range printed {
			cells = append(cells, customCell(paths[i], content, p.Type, now))
		}
		return cells, nil, nil
	}
	return c
}

// customCell returns the value of a column of a CRD, nil if the object has none.
func customCell(path *jsonpath.JSONPath, content map[string]any, kind string, now time.Time) any {
	if path == nil {
		return nil
	}
	// A JSONPath holds a position while it is evaluated; requests share the columns.
	p := *path
	results, err := p.FindResults(content)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil
	}
	value := results[0][0].Interface()
	if kind == "string" {
		var b bytes.Buffer
		if p.PrintResults(&b, results[0][:1]) != nil {
			return nil
		}
		return b.String()
	}
	switch value := value.(type) {
	case json.Number:
		if n, err := value.Int64(); err == nil && kind == "integer" {
			return n
		}
		if f, err := value.Float64(); err == nil && slices.Contains([]string{"integer", "number"}, kind) {
			if kind == "integer" {
				return int64(f)
			}
			return f
		}
	case bool:
		if kind == "boolean" {
			return value
		}
	case string:
		if kind != "date" {
			return nil
		}
		at, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return "<invalid>"
		}
		return ago(at, now)
	}
	return nil
}

// unknown is the cell of a value that the record does not have.
const unknown = "<unknown>"

// ago returns how long before now a time was, as kubectl prints it.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(at))
}
