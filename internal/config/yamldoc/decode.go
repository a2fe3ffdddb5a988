package yamldoc

import (
	"encoding"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// decoder sets the values of a document. goccy/go-yaml parses; its strict decoding is not used,
// because it ends at the first error and does not keep the positions of values.
type decoder struct {
	*Document
	options *Options
	root    reflect.Type
	data    []byte
	anchors map[string]ast.Node
	errs    Errors
	paths   []string // of all keys; nil until an unknown one needs them

	overrides []*override
	within    *override // the one that is being decoded; nil: the document is
}

// Variants is a map whose keys have values of different types. Keys returns the keys in their
// order, New a pointer to the zero value of one.
type Variants interface {
	Keys() []string
	New(key string) any
}

// Defaulter is a value with defaults of its own. SetDefaults is called before the keys of the
// document are set.
type Defaulter interface{ SetDefaults() }

// Switch is a struct that a document may also write as true, with its defaults, or as false, which
// makes the pointer to it nil.
type Switch interface {
	Defaulter
	Switch()
}

// parse returns the root of the only document, nil if the file is empty.
func (d *decoder) parse() ast.Node {
	switch {
	case len(d.data) > MaxBytes:
		d.fail(nil, "", "must not be larger than %v", Bytes(MaxBytes))
		return nil
	case !utf8.Valid(d.data):
		d.notUTF8()
		return nil
	}
	tokens, limit, err := tokenize(d.data)
	if err != nil {
		d.fail(limit, "", "%v", err)
		return nil
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			d.syntax(syntax)
		} else {
			d.fail(nil, "", "%v", err)
		}
		return nil
	}
	var root ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case root != nil:
			d.fail(start(doc.Body), "", "a second document begins after ---: a file must have one")
		default:
			root = doc.Body
		}
	}
	if root != nil {
		ast.Walk(d, root)
	}
	return root
}

// Visit implements ast.Visitor: it collects the anchors.
func (d *decoder) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		name := a.Name.GetToken().Value
		if _, twice := d.anchors[name]; twice {
			d.fail(a.Name.GetToken(), "", "anchor &%s is defined twice", name)
		}
		d.anchors[name] = a.Value
	}
	return d
}

// resolve follows anchors and aliases to the node with the content. It returns nil after an error.
func (d *decoder) resolve(n ast.Node, path string) ast.Node {
	for range 16 { // aliases of aliases: 16 is more than anybody writes, and ends a cycle
		switch t := n.(type) {
		case *ast.AnchorNode:
			n = t.Value
		case *ast.AliasNode:
			target, ok := d.anchors[t.Value.GetToken().Value]
			if !ok {
				d.fail(t.GetToken(), path, "there is no anchor &%s; a text that begins with * needs quotes",
					t.Value.GetToken().Value)
				return nil
			}
			n = target
		case *ast.TagNode:
			d.fail(t.GetToken(), path, "must have no tag, got %s; a text that begins with ! needs quotes",
				t.GetToken().Value)
			return nil
		case nil:
			return nil
		default:
			return n
		}
	}
	d.fail(n.GetToken(), path, "is an alias of itself")
	return nil
}

func (d *decoder) value(n ast.Node, v reflect.Value, path string) {
	if o := d.overrideOf(path); o != nil {
		d.during(o, func() { d.content(o.node, v, path) })
		return
	}
	d.content(n, v, path)
}

// content decodes a node that no override replaces.
func (d *decoder) content(n ast.Node, v reflect.Value, path string) {
	n = d.resolve(n, path)
	if n == nil {
		return
	}
	if !d.Has(path) {
		d.mark(start(n), path)
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if s, ok := d.scalar(n, path, "text or a number"); ok {
			if err := text.UnmarshalText([]byte(s)); err != nil {
				d.fail(n.GetToken(), path, "%v", err)
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if _, ok := v.Interface().(Switch); ok {
			n = d.switched(n, v, path)
			if n == nil {
				return
			}
		}
		v.Set(reflect.New(v.Type().Elem()))
		d.content(n, v.Elem(), path)
	case reflect.Struct:
		if p, ok := v.Addr().Interface().(Defaulter); ok {
			p.SetDefaults()
		}
		d.mapping(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Map:
		if _, ok := v.Interface().(Variants); ok {
			d.mapping(n, v, path)
		} else {
			d.dictionary(n, v, path)
		}
	case reflect.String:
		d.text(n, v, path)
	case reflect.Bool:
		if s, ok := d.scalar(n, path, "true or false"); ok {
			if s != "true" && s != "false" || isQuoted(n) {
				d.fail(n.GetToken(), path, "must be true or false%s, got %s", unquoted(n), describe(n))
				return
			}
			v.SetBool(s == "true")
		}
	case reflect.Int:
		if s, ok := d.scalar(n, path, "a whole number"); ok {
			i, err := strconv.Atoi(s)
			switch {
			case errors.Is(err, strconv.ErrRange):
				d.fail(n.GetToken(), path, "is too large a number, got %s", Shorten(s))
			case err != nil || isQuoted(n):
				d.fail(n.GetToken(), path, "must be a whole number%s, got %s", unquoted(n), describe(n))
			default:
				v.SetInt(int64(i))
			}
		}
	default:
		d.fail(n.GetToken(), path, "is of kind %s, which the decoder does not support", v.Kind())
	}
}

// switched returns the mapping of a Switch. It returns nil if the Switch is off, or after an error.
func (d *decoder) switched(n ast.Node, v reflect.Value, path string) ast.Node {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode, *ast.NullNode:
		return n
	}
	or := ", or a mapping" + keysOf(v.Type().Elem())
	s, ok := d.scalar(n, path, "true or false"+or)
	switch {
	case !ok:
	case isQuoted(n) || s != "true" && s != "false":
		d.fail(n.GetToken(), path, "must be true or false%s%s, got %s", unquoted(n), or, describe(n))
	case s == "true":
		return ast.Null(nil)
	default:
		v.SetZero()
	}
	return nil
}

// text decodes text, or an Enum.
func (d *decoder) text(n ast.Node, v reflect.Value, path string) {
	if e, ok := v.Interface().(Enum); ok {
		if s, ok := d.scalar(n, path, OneOf(e)); ok {
			v.SetString(s)
		}
		return
	}
	if !isText(n) {
		d.fail(n.GetToken(), path, "must be text, got %s; write it in quotes", describe(n))
		return
	}
	if s, ok := d.scalar(n, path, "text"); ok {
		v.SetString(s)
	}
}

func (d *decoder) mapping(n ast.Node, v reflect.Value, path string) {
	known := keys(v.Type())
	if v.Kind() == reflect.Map {
		v.SetZero()
	}
	var written []string
	for at, pair := range d.pairs(n, path, keysOf(v.Type())) {
		tok := pair.Key.GetToken()
		written = append(written, tok.Value)
		if !slices.Contains(known, tok.Value) {
			d.fail(tok, at, "%s", d.unknownField(tok.Value, path, known))
			continue
		}
		if isEmpty(pair.Value) {
			d.mark(tok, at)
		}
		d.member(pair.Value, v, tok.Value, at)
	}
	for name, o := range d.overridden(path, written, false) {
		at := join(path, name)
		d.during(o, func() {
			if slices.Contains(known, name) {
				d.member(ast.Null(nil), v, name, at)
				return
			}
			o.used = true
			d.fail(nil, at, "%s", d.unknownField(name, path, known))
		})
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// member decodes the value of a key of a struct or a Variants.
func (d *decoder) member(n ast.Node, v reflect.Value, key, path string) {
	if v.Kind() == reflect.Struct {
		d.value(n, fieldOf(v, key), path)
		return
	}
	value := reflect.ValueOf(
		v.Interface().(Variants).New(key)) //nolint:forcetypeassert // mappings are one or the other
	d.value(n, value.Elem(), path)
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	if v.Type().Elem().Kind() != reflect.Interface {
		value = value.Elem()
	}
	v.SetMapIndex(reflect.ValueOf(key), value)
}

// pairs yields the path of each key of a mapping with its node. If n is not a mapping, the error
// names the keys that are expected.
func (d *decoder) pairs(n ast.Node, path, keys string) iter.Seq2[string, *ast.MappingValueNode] {
	return func(yield func(string, *ast.MappingValueNode) bool) {
		var pairs []*ast.MappingValueNode
		switch t := n.(type) {
		case *ast.MappingNode:
			pairs = t.Values
		case *ast.MappingValueNode:
			pairs = []*ast.MappingValueNode{t}
		case *ast.NullNode: // "server:" with all its keys commented out
		default:
			d.fail(start(n), path, "must be a mapping%s, got %s", keys, describe(n))
		}
		for _, pair := range pairs {
			tok := pair.Key.GetToken()
			if pair.Key.IsMergeKey() {
				d.fail(tok, path, "merge keys (<<) are not supported, anchors (&) and aliases (*) are")
				continue
			}
			if !yield(join(path, Shorten(Mask(tok.Value))), pair) {
				return
			}
		}
	}
}

// dictionary decodes a mapping with arbitrary keys. Its values are text, even if YAML would read a
// number.
func (d *decoder) dictionary(n ast.Node, v reflect.Value, path string) {
	dictionary := reflect.MakeMap(v.Type())
	for at, pair := range d.pairs(n, path, "") {
		held := d.resolve(pair.Value, at)
		if isEmpty(held) {
			d.fail(pair.Key.GetToken(), at, "must be text or a number, got nothing; write a value or leave it out")
			continue
		}
		d.mark(start(held), at)
		if s, ok := d.scalar(held, at, "text or a number"); ok {
			dictionary.SetMapIndex(reflect.ValueOf(pair.Key.GetToken().Value), reflect.ValueOf(s))
		}
	}
	for name := range d.overridden(path, nil, true) {
		at := join(path, name)
		o := d.overrideOf(at)
		d.during(o, func() {
			d.mark(nil, at)
			if s, ok := d.scalar(o.node, at, "text or a number"); ok {
				dictionary.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(s))
			}
		})
	}
	v.SetZero()
	if dictionary.Len() > 0 {
		v.Set(dictionary)
	}
}

func (d *decoder) list(n ast.Node, v reflect.Value, path string) {
	seq, ok := n.(*ast.SequenceNode)
	switch {
	case !ok && d.within != nil && isEmpty(n):
		d.fail(nil, path, "the file has no such list: set the whole list")
		return
	case !ok:
		d.fail(start(n), path, "must be a list, got %s%s", describe(n), asList(n))
		return
	}
	if len(seq.Values) == 0 {
		v.SetZero() // "[]" and no key at all are the same thing where the default is none
		return
	}
	list := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, item := range seq.Values {
		d.value(item, list.Index(i), path+"["+strconv.Itoa(i)+"]")
	}
	v.Set(list)
}

// scalar returns the text of a scalar after the expansion of its variables.
func (d *decoder) scalar(n ast.Node, path, want string) (string, bool) {
	var s string
	switch t := n.(type) {
	case *ast.StringNode:
		s = t.Value
	case *ast.LiteralNode:
		s = t.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	default:
		d.fail(n.GetToken(), path, "must be %s, got %s", want, describe(n))
		return "", false
	}
	expanded, err := expand(s, d.options.Lookup)
	if err != nil {
		d.fail(n.GetToken(), path, "%v", err)
		return "", false
	}
	if s != expanded {
		d.noteVariables(path, s, d.options.Lookup)
	}
	if _, ok := d.texts[path]; !ok && s == expanded {
		d.texts[path] = s
	}
	return expanded, true
}

var variable = regexp.MustCompile(`\$(\$|\{[A-Za-z_][A-Za-z0-9_]*\})?`)

// expand replaces ${NAME} and $$. The value of a variable is not expanded again.
func expand(s string, lookup func(string) (string, bool)) (string, error) {
	var errs []error
	s = variable.ReplaceAllStringFunc(s, func(m string) string {
		switch m {
		case "$$":
			return "$"
		case "$":
			errs = append(errs, errors.New("$ must begin ${NAME}, an environment variable; write $$ for a literal $"))
			return m
		}
		name := m[2 : len(m)-1]
		value, ok := lookup(name)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("environment variable %s is not set", name))
		case !utf8.ValidString(value):
			errs = append(errs, fmt.Errorf("environment variable %s is not UTF-8", name))
		}
		return value
	})
	if len(errs) > 0 {
		return "", errs[0]
	}
	return s, nil
}

// asList suggests how to write a value as a list.
func asList(n ast.Node) string {
	switch t := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "; begin each item with -"
	case *ast.StringNode:
		if s := Shorten(t.Value); s == Mask(s) {
			return "; write [" + s + "]"
		}
	}
	return ""
}

// unquoted suggests to remove quotes that make text of another value.
func unquoted(n ast.Node) string {
	if isQuoted(n) {
		return " without quotes"
	}
	return ""
}

// start returns the first token of a node. For a mapping, goccy returns the colon.
func start(n ast.Node) *token.Token {
	switch t := n.(type) {
	case *ast.MappingValueNode:
		return t.Key.GetToken()
	case *ast.MappingNode:
		if !t.IsFlowStyle && len(t.Values) > 0 {
			return t.Values[0].Key.GetToken()
		}
	}
	return n.GetToken()
}

// isEmpty reports whether a value is missing, so that its token has no position.
func isEmpty(n ast.Node) bool {
	_, null := n.(*ast.NullNode)
	return n == nil || null
}

func isText(n ast.Node) bool {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return false
	}
	return true // or not a scalar, which scalar rejects
}

// isQuoted reports whether a scalar is marked as text by quotes. One with a variable does not
// count: in flow mappings, ${NAME} requires quotes.
func isQuoted(n ast.Node) bool {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return false
	}
	t := s.GetToken().Type
	return (t == token.SingleQuoteType || t == token.DoubleQuoteType) && !strings.Contains(s.Value, "${")
}

// describe returns the kind of a node, or the value of a scalar as written.
func describe(n ast.Node) string {
	switch t := n.(type) {
	case *ast.NullNode:
		return "nothing; write a value or leave it out"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return Quote(t.Value)
	case *ast.LiteralNode:
		return Quote(t.Value.Value)
	}
	return Shorten(n.GetToken().Value)
}

func (d *decoder) mark(tok *token.Token, path string) {
	if d.within != nil {
		d.positions[path] = position{source: d.within.Source}
		return
	}
	if tok != nil && tok.Position != nil {
		d.positions[path] = position{line: tok.Position.Line, column: tok.Position.Column}
	}
}

func (d *decoder) fail(tok *token.Token, path, format string, args ...any) {
	e := &Error{Path: path, Message: fmt.Sprintf(format, args...)}
	d.concealError(e)
	if d.within != nil {
		e.File = d.within.Source
		d.errs = append(d.errs, e)
		return
	}
	if tok != nil && tok.Position != nil {
		e.Line, e.Column = tok.Position.Line, tok.Position.Column
	}
	e.File, e.lines = d.name, d.excerpts
	d.errs = append(d.errs, e)
}
