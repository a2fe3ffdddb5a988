// Package printer has the formats of --output, and prints values in them. It knows no flags and no commands.
package printer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
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

// Wide reports whether all columns and fields are printed.
func (f *Format) Wide() bool { return f.Name == Wide }

// Structured reports whether the output is for programs: JSON or YAML.
func (f *Format) Structured() bool { return f.Name == JSON || f.Name == YAML }

// Encode returns a value as JSON with this indentation, as YAML with the same keys, or the text that the template makes of the JSON.
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
		return ToYAML(raw)
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

// notInYAML are the characters that JSON permits, and that the parser of YAML rejects or reads as a line end.
var notInYAML = regexp.MustCompile("[\x7f-\u009f\ufeff\ufffe\uffff]")

// ToYAML returns JSON as YAML.
func ToYAML(raw []byte) ([]byte, error) {
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(value) // without escapes of surrogates, which YAML does not have
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(notInYAML.ReplaceAllFunc(raw, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		return fmt.Appendf(nil, `\u%04x`, r)
	}))
}

// ObjectName returns the name of an object in the format Name, as kubectl prints it: deployment.apps/web.
func ObjectName(kind, group, name string) string {
	kind = strings.ToLower(kind)
	if group != "" {
		kind += "." + group
	}
	return kind + "/" + name
}
