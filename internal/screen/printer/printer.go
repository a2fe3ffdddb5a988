// Package printer has the formats of --output, and prints values in them. It knows no flags and no
// commands.
package printer

import (
	"bytes"
	"encoding/json"
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kubecdc/kubecdc/internal/object/yamltext"
)

// The formats. Diff is for commands that show changes, Markdown for reports that people file.
const (
	Table    = "table"
	Wide     = "wide"
	JSON     = "json"
	YAML     = "yaml"
	Name     = "name"
	Diff     = "diff"
	Markdown = "markdown"
	JSONPath = "jsonpath=" // followed by a template
)

// Format is the format of an answer.
type Format struct {
	Name     string             // one of the constants
	template *jsonpath.JSONPath // of JSONPath; nil for other formats
}

// Template returns the format JSONPath with a template as for kubectl.
func Template(text string) (Format, error) {
	t := jsonpath.New("output").AllowMissingKeys(true)
	return Format{JSONPath, t}, t.Parse(text)
}

// IsWide reports whether all columns and fields are printed.
func (f *Format) IsWide() bool { return f.Name == Wide }

// IsStructured reports whether the output is for programs: JSON or YAML.
func (f *Format) IsStructured() bool { return f.Name == JSON || f.Name == YAML }

// Encode returns a value as JSON with this indentation, as YAML with the same keys, or the text
// that the template makes of the JSON.
func (f *Format) Encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	switch f.Name {
	case JSON:
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", indent)
		err := e.Encode(v)
		return b.Bytes(), err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if f.Name == YAML {
		return yamltext.FromJSON(raw)
	}
	var data any
	if err := utiljson.Unmarshal(raw, &data); err != nil { // integers stay integers
		return nil, err
	}
	if err := f.template.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("--output jsonpath: %w", err)
	}
	return b.Bytes(), nil
}
