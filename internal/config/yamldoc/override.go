package yamldoc

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Override sets one key over the document, as if the document had it. The last of several overrides
// of a path counts. An override of a part of another override counts more than that one.
type Override struct {
	Source string // of the value, in place of a file in errors: "--set"
	Path   string // "watch[0].where"
	Value  string // text, a number, true or false; YAML if it begins with [ or {
}

var assignment = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_.\[\]-]*)=([\s\S]*)$`)

// ParseOverride reads "path=value".
func ParseOverride(source, text string) (Override, error) {
	m := assignment.FindStringSubmatch(text)
	if m == nil {
		return Override{},
			errors.New("must be KEY=VALUE, such as log.level=debug or 'watch[0].namespaces=[shop, bank]'")
	}
	return Override{Source: source, Path: m[1], Value: m[2]}, nil
}

// override is an Override while a document is decoded.
type override struct {
	Override

	node ast.Node
	used bool // its path was found
}

// node returns the value as the parser would have returned it.
func (o *Override) node() (ast.Node, error) {
	if !strings.HasPrefix(o.Value, "[") && !strings.HasPrefix(o.Value, "{") {
		return ast.String(&token.Token{Type: token.StringType, Value: o.Value, Origin: o.Value}), nil
	}
	if len(o.Value) > MaxBytes {
		return nil, fmt.Errorf("must not be larger than %v", Bytes(MaxBytes))
	}
	tokens, _, err := tokenize([]byte(o.Value))
	if err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil || len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil,
			fmt.Errorf("must be valid YAML: a list such as [a, b] or a mapping such as {a: b}, got %s", Quote(o.Value))
	}
	return file.Docs[0].Body, nil
}

// prepareOverrides parses the values.
func (d *decoder) prepareOverrides() {
	for i := range d.options.Set {
		o := &override{Override: d.options.Set[i]}
		d.overrides = append(d.overrides, o)
		var err error
		o.node, err = o.Override.node()
		if err != nil {
			d.during(o, func() { d.fail(nil, o.Path, "%v", err) })
		}
	}
}

// overrideOf returns the override of a path, nil if there is none.
func (d *decoder) overrideOf(path string) *override {
	var found *override
	for _, o := range d.overrides {
		if o.Path == path {
			found, o.used = o, true
		}
	}
	return found
}

// overridden yields the keys of the mapping at path that overrides set, but not those in written,
// which the document has. whole: the keys may contain dots.
func (d *decoder) overridden(path string, written []string, whole bool) iter.Seq2[string, *override] {
	return func(yield func(string, *override) bool) {
		for _, o := range d.overrides {
			rest := o.Path
			if path != "" {
				var below bool
				rest, below = strings.CutPrefix(o.Path, path+".")
				if !below {
					continue
				}
			}
			if end := strings.IndexAny(rest, ".["); end >= 0 && !whole {
				rest = rest[:end]
			}
			if slices.Contains(written, rest) {
				continue
			}
			written = append(written, rest)
			if !yield(rest, o) {
				return
			}
		}
	}
}

// during calls f while values and errors are those of an override, not of the document.
func (d *decoder) during(o *override, f func()) {
	outer := d.within
	d.within = o
	f()
	d.within = outer
}

// reportUnused adds an error for each override whose path is not one of the configuration.
func (d *decoder) reportUnused() {
	for _, o := range d.overrides {
		if !o.used && !d.errs.Covers(o.Path) {
			d.during(o, func() { d.fail(nil, o.Path, "there is no such key or list item") })
		}
	}
}
