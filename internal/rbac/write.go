package rbac

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// WriteJSON writes the objects as one List, without notes: JSON has no comments.
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

// WriteYAML writes one document per object, with the notes as comments.
func (m *Manifests) WriteYAML(w io.Writer) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	for i, o := range m.Objects {
		doc, err := o.yaml()
		if err != nil {
			return err
		}
		if i == 0 {
			doc.Content[0].Content[0].HeadComment = comment(0, slices.Concat(m.Header, m.Notes))
		}
		if err := e.Encode(doc); err != nil {
			return err
		}
	}
	return e.Close()
}

// yaml returns the document of an object. It decodes JSON as YAML, because that keeps the order of
// keys.
func (o *Object) yaml() (*yaml.Node, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	doc := new(yaml.Node)
	if err := yaml.Unmarshal(raw, doc); err != nil {
		return nil, err
	}
	blockStyle(doc)
	root := doc.Content[0]
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value != "rules" {
			continue
		}
		for k, rule := range root.Content[i+1].Content {
			rule.HeadComment = comment(2, o.Rules[k].Notes)
		}
	}
	return doc, nil
}

// blockStyle replaces the flow style of JSON. Lists of scalars stay on one line.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.SequenceNode && n.Content[0].Kind == yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// comment breaks notes into lines that fit after an indentation of indent columns. Any white space
// becomes one space, because a note may quote the configuration.
func comment(indent int, notes []string) string {
	const width = 100
	var lines []string
	for _, note := range notes {
		line := "#"
		for _, word := range strings.Fields(note) {
			if indent+len(line)+1+len(word) > width && line != "#" {
				lines = append(lines, line)
				line = "#"
			}
			line += " " + word
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
