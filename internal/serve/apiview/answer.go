package apiview

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/yamltext"
)

// answer writes objects in the form that a client asked for.
type answer struct {
	resource *resource
	form     form
	table    *table // nil: not a table
}

func (v *View) newAnswer(f form, res *resource, query url.Values) (*answer, error) {
	a := &answer{resource: res, form: f}
	if f.as != "Table" {
		return a, nil
	}
	include := query.Get("includeObject")
	switch include {
	case "", "None", "Metadata", "Object":
	default:
		return nil, badRequest("unrecognized includeObject value: %q", include)
	}
	a.table = &table{
		view:     v,
		resource: res,
		version:  f.version,
		include:  include,
	}
	return a, nil
}

// write answers with body, which is JSON, or converts it to YAML.
func (f form) write(w http.ResponseWriter, body []byte) error {
	kind := "application/json"
	if f.yaml {
		kind = "application/yaml"
		var err error
		body, err = yamltext.FromJSON(body)
		if err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body) // the client has gone
	return nil
}

// write writes a list.
func (a *answer) write(w io.Writer, meta *metav1.ListMeta, objects []*object.Object) error {
	var b bytes.Buffer
	switch {
	case a.table != nil:
		var err error
		objects, err = a.table.arrangeObjects(objects)
		if err != nil {
			return err
		}
		a.table.writeHead(&b, meta)
	default:
		kind, version := a.resource.kind.name+"List", a.resource.groupVersion()
		if a.form.as != "" {
			kind, version = "PartialObjectMetadataList", "meta.k8s.io/"+a.form.version
		}
		head, err := json.Marshal(struct {
			metav1.TypeMeta
			Meta *metav1.ListMeta `json:"metadata"`
		}{metav1.TypeMeta{Kind: kind, APIVersion: version}, meta})
		if err != nil {
			return err
		}
		b.Write(head[:len(head)-1])
		b.WriteString(`,"items":[`)
	}
	var body []byte
	for i, o := range objects {
		if i > 0 {
			b.WriteByte(',')
		}
		var err error
		body, err = o.AppendJSON(body[:0])
		if err != nil {
			return err
		}
		if err := a.append(&b, body); err != nil {
			return err
		}
		if b.Len() < 32<<10 {
			continue
		}
		if _, err := b.WriteTo(w); err != nil {
			return nil //nolint:nilerr // the client has gone
		}
	}
	if a.table != nil {
		a.table.writeEnd(&b)
	} else {
		b.WriteString("]}\n")
	}
	_, _ = b.WriteTo(w) // the client has gone
	return nil
}

// append appends an object: as it is, as its metadata, or as a row. Metadata are those of the
// record in each version, as kube-apiserver has them.
func (a *answer) append(b *bytes.Buffer, body []byte) error {
	var out []byte
	var err error
	switch {
	case a.table != nil:
		return a.table.writeRow(b, body)
	case a.form.as == "":
		out, err = a.resource.convert(body)
	default:
		out, err = metadataOf(body, a.form.version)
	}
	b.Write(out)
	return err
}

// metadataOf returns the metadata of an object as a PartialObjectMetadata.
func metadataOf(body []byte, version string) ([]byte, error) {
	var o struct {
		metav1.TypeMeta
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	o.Kind, o.APIVersion = "PartialObjectMetadata", "meta.k8s.io/"+version
	return json.Marshal(o)
}

// writeBody answers with a value, with the Content-Type that is set.
func writeBody(w http.ResponseWriter, value any) {
	_ = json.NewEncoder(w).Encode(value) // the client has gone
}
