package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Planned is a key, or a value of a key, that the contract has and this release cannot do. It is refused, never
// ignored; when it begins to work it leaves the list. An index of a list is written [].
type Planned struct {
	Path string
	What string // what it would do: "leader election"

	// Value is the one value that is refused; "": the key is.
	Value string
	// Off is the value at which the key may be written all the same, because it says what this release does anyway:
	// "[]", "0s". "": there is none.
	Off string
}

// PlannedKeys are all of them, in the order of the file.
func PlannedKeys() []Planned {
	return []Planned{
		{Path: "watch[].operations", What: "choosing operations", Off: "[created, updated, deleted]"},
		{Path: "watch[].where", What: "filtering by a CEL expression", Off: `""`},
		{Path: "watch[].onError", What: "what becomes of a delta whose expression fails"},
		{Path: "watch[].redact", What: "redacting paths", Off: "[]"},
		{Path: "noise", What: "leaving out known noise", Off: "[]"},
		{Path: "redaction.mode", Value: "hash", What: "redacting by a keyed hash"},
		{Path: "redaction.keyFile", What: "redacting by a keyed hash", Off: `""`},
	}
}

var indexes = regexp.MustCompile(`\[[0-9]+\]`)

// notYet finds what a key would do.
func notYet(path string) (Planned, bool) {
	return planned(indexes.ReplaceAllString(path, "[]"), "")
}

// notYetValue finds what a value of a key would do.
func notYetValue(path, value string) (what string, ok bool) {
	p, ok := planned(path, value)
	return p.What, ok
}

func planned(path, value string) (Planned, bool) {
	all := PlannedKeys()
	i := slices.IndexFunc(all, func(p Planned) bool { return p.Path == path && p.Value == value })
	if i < 0 {
		return Planned{}, false
	}
	return all[i], true
}

// isOff reports whether the node says what Off says, however it is written.
func (p Planned) isOff(n ast.Node) bool { return p.Off != "" && written(n) == p.Off }

// refusal is the message for the key.
func (p Planned) refusal() string {
	if p.Off != "" {
		return "not yet supported: " + p.What + "; leave it out or write " + p.Off
	}
	return "not yet supported: " + p.What + "; leave it out"
}

// written is a scalar or a list of scalars in one spelling; "" for anything else.
func written(n ast.Node) string {
	switch t := n.(type) {
	case *ast.StringNode:
		if t.Value == "" {
			return `""`
		}
		return t.Value
	case *ast.IntegerNode:
		if t.GetToken().Value == "0" {
			return "0s" // the one duration that needs no unit
		}
	case *ast.SequenceNode:
		items := make([]string, len(t.Values))
		for i, v := range t.Values {
			items[i] = written(v)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return ""
}
