package rbac

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// WriteJSON writes the objects as one List. JSON has no room for notes.
func (m *Manifests) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Items      []Object `json:"items"`
	}{"v1", "List", m.Objects})
}

// WriteYAML writes a document for each object, with the notes as comments.
func (m *Manifests) WriteYAML(w io.Writer) error {
	y := &yaml{}
	for _, note := range slices.Concat(m.Header, m.Notes) {
		y.comment("", note)
	}
	for i, o := range m.Objects {
		if i > 0 {
			y.line("---")
		}
		y.object(o)
	}
	_, err := io.WriteString(w, y.text.String())
	return err
}

// yaml writes what these objects need of YAML, with comments where they belong; values are quoted where a plain one
// might be read as something else than text.
type yaml struct{ text strings.Builder }

func (y *yaml) line(format string, args ...any) {
	fmt.Fprintf(&y.text, format+"\n", args...)
}

func (y *yaml) object(o Object) {
	y.line("apiVersion: %s", o.APIVersion)
	y.line("kind: %s", o.Kind)
	y.line("metadata:")
	y.line("  name: %s", scalar(o.Metadata.Name))
	if o.Metadata.Namespace != "" {
		y.line("  namespace: %s", scalar(o.Metadata.Namespace))
	}
	if len(o.Rules) > 0 {
		y.line("rules:")
	}
	for _, r := range o.Rules {
		for _, note := range r.Notes {
			y.comment("  ", note)
		}
		y.line("  - apiGroups: %s", sequence(r.APIGroups))
		y.line("    resources: %s", sequence(r.Resources))
		if len(r.ResourceNames) > 0 {
			y.line("    resourceNames: %s", sequence(r.ResourceNames))
		}
		y.line("    verbs: %s", sequence(r.Verbs))
	}
	if o.RoleRef != nil {
		y.line("roleRef:")
		y.line("  apiGroup: %s", o.RoleRef.APIGroup)
		y.line("  kind: %s", o.RoleRef.Kind)
		y.line("  name: %s", scalar(o.RoleRef.Name))
	}
	if len(o.Subjects) > 0 {
		y.line("subjects:")
	}
	for _, s := range o.Subjects {
		y.line("  - kind: %s", s.Kind)
		y.line("    name: %s", scalar(s.Name))
		y.line("    namespace: %s", scalar(s.Namespace))
	}
}

// comment breaks the note into lines. A note may quote the configuration: what is no word's part is made a space.
func (y *yaml) comment(indent, note string) {
	const width = 100
	line := indent + "#"
	for _, word := range strings.Fields(note) {
		if len(line)+1+len(word) > width && line != indent+"#" {
			y.line("%s", line)
			line = indent + "#"
		}
		line += " " + word
	}
	y.line("%s", line)
}

func sequence(items []string) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = scalar(item)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// plainScalar is text in every version of YAML, with the exception of the words below.
var plainScalar = regexp.MustCompile(`^[a-z][a-z0-9]*([-./][a-z0-9]+)*$`)

func scalar(s string) string {
	if plainScalar.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, s) {
		return s
	}
	quoted, _ := json.Marshal(s) // a string cannot fail, and JSON is YAML
	return string(quoted)
}
