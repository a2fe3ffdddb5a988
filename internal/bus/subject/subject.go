package subject

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// Default is the subject template of objects' events.
	Default = "kubecdc.{cluster}.object.{group}.{resource}.{namespace}.{name}"

	// Stream is the subject template of events about snapshots.
	Stream = "kubecdc.{cluster}.stream.{group}.{resource}"

	// Scope is the subject template of the other stream events: the starts and ends of a scope, and
	// its gaps. It has a placeholder of its own. The last record of such a subject says whether the
	// scope has ended.
	Scope = scopesOf + ".{scope}"

	scopesOf = "kubecdc.{cluster}.scope.{group}.{resource}"

	// Progress is the subject template of the progress of an agent. It has a placeholder of its
	// own.
	Progress = progressOf + ".{writer}"

	progressOf = "kubecdc.{cluster}.progress"

	// A token of more than maxToken bytes, escaped, becomes its first cutToken bytes, '~' and the
	// sha256 of the unescaped token. (Names of RBAC objects may have 4,000 bytes; the server cuts
	// the connection for a subject near 4 KB.)
	maxToken = 256
	cutToken = 128

	// maxSubject bounds every subject. The server's limit is 4,096 bytes for the whole control
	// line, with reply subject and sizes.
	maxSubject = 2048
)

// Field is the kind of a template part: text, or an attribute of the object.
type Field byte

// The kinds of template parts.
const (
	FieldLiteral Field = iota // text to copy
	FieldGroup
	FieldResource
	FieldNamespace
	fieldName
)

// Part is a piece of a template: text to copy, or a field of the object.
type Part struct {
	Field Field
	Text  string
}

// Template has the compiled templates of objects' events, of stream events and of progress.
type Template struct {
	object   []Part
	stream   []Part
	scopes   []Part // the subjects up to the scope
	progress string // the subjects up to the writer
}

// New compiles the subject template of objects' events; "" is Default. Placeholders are {cluster},
// {group}, {resource}, {namespace} and {name}; cluster is the value of the first.
func New(template, cluster string) (*Template, error) {
	template = cmp.Or(template, Default)
	if cluster == "" {
		return nil, errors.New("subject template: the cluster has no name")
	}
	var t Template
	var err error
	t.object, err = Compile(template, cluster)
	if err != nil {
		return nil, fmt.Errorf("subject template %q: %w", template, err)
	}
	t.stream, err = Compile(Stream, cluster)
	if err != nil {
		return nil, fmt.Errorf("subject template %q: %w", Stream, err)
	}
	t.scopes, err = Compile(scopesOf, cluster)
	if err != nil {
		return nil, fmt.Errorf("subject template %q: %w", Scope, err)
	}
	progress, err := Compile(progressOf, cluster)
	if err != nil {
		return nil, fmt.Errorf("subject template %q: %w", Progress, err)
	}
	t.progress = progress[0].Text + "."
	return &t, nil
}

// AppendProgress appends the subject of a writer's progress to dst.
func (t *Template) AppendProgress(dst []byte, writer string) []byte {
	return appendToken(append(dst, t.progress...), writer)
}

// Append appends the subject of d's event to dst. For the progress of an agent, use AppendProgress:
// its subject has the writer.
func (t *Template) Append(dst []byte, d *object.Delta) []byte {
	if e := d.Stream; e != nil {
		if e.IsOfSnapshot() {
			return appendParts(dst, t.stream, e.Resource, "", "")
		}
		return appendToken(append(appendParts(dst, t.scopes, e.Resource, "", ""), '.'), e.Scope)
	}
	return appendParts(dst, t.object, d.Ref.Resource, d.Ref.Namespace(), d.Ref.Name())
}

// OfStream returns two subjects that match all stream events of a resource: the subject of its
// snapshots, and a NATS wildcard for the events about its scopes.
func (t *Template) OfStream(r *object.Resource) []string {
	return []string{string(appendParts(nil, t.stream, r, "", "")), string(appendParts(nil, t.scopes, r, "", "")) + ".*"}
}

// OfResource returns the narrowest NATS wildcard that matches the subjects of all objects of a
// resource.
func (t *Template) OfResource(r *object.Resource) string {
	parts := slices.Clone(t.object)
	for i := range parts {
		switch p := &parts[i]; p.Field {
		case FieldGroup:
			*p = Part{Text: string(appendGroup(nil, r.Group))}
		case FieldResource:
			*p = Part{Text: string(appendToken(nil, r.Name))}
		case FieldLiteral, FieldNamespace, fieldName:
		}
	}
	return pattern(parts)
}

// Patterns returns the NATS wildcards that match every subject that Append and AppendProgress can
// return.
func (t *Template) Patterns() []string {
	return []string{pattern(t.object), pattern(t.stream), pattern(t.scopes) + ".*", t.progress + "*"}
}

// Capture returns the subjects to create a stream with: each template's literal tokens up to the
// first placeholder, then ">" ("kubecdc.prod-eu-1.>" for all, by default), or the whole template if
// it has no placeholder.
func (t *Template) Capture() []string {
	object, stream := capture(t.object), capture(t.stream)
	// They have different third tokens ("object", "stream", "scope", "progress"); the shared tokens
	// become one subject if they include the cluster.
	ofObjects, ofStream := strings.Split(object, "."), strings.Split(stream, ".")
	if len(ofObjects) > 2 && slices.Equal(ofObjects[:2], ofStream[:2]) {
		return []string{ofObjects[0] + "." + ofObjects[1] + ".>"}
	}
	if Covers(object, stream) { // it ends before the third token
		return []string{object}
	}
	return []string{object, stream, capture(t.scopes), t.progress + ">"}
}

// Parse splits a template into parts. text returns the error of a byte outside of placeholders.
// value returns the text of a placeholder, or its field; follows reports whether it directly
// follows another field.
func Parse(
	template string, text func(i int, c byte) error, value func(name string, follows bool) (string, Field, error),
) ([]Part, error) {
	var parts []Part
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, Part{Text: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(template); {
		if c := template[i]; c != '{' {
			if err := text(i, c); err != nil {
				return nil, fmt.Errorf("at byte %d: %w", i, err)
			}
			literal.WriteByte(c)
			i++
			continue
		}
		end := strings.IndexByte(template[i:], '}')
		if end < 0 {
			return nil, fmt.Errorf("at byte %d: unclosed {", i)
		}
		constant, field, err := value(template[i+1:i+end], literal.Len() == 0 && len(parts) > 0)
		if err != nil {
			return nil, fmt.Errorf("at byte %d: %w", i, err)
		}
		literal.WriteString(constant)
		if field != FieldLiteral {
			flush()
			parts = append(parts, Part{Field: field})
		}
		i += end + 1
	}
	flush()
	return parts, nil
}

// Compile parses a template of subjects.
func Compile(template, cluster string) ([]Part, error) {
	tokenStart := 0 // start of the current token
	parts, err := Parse(template, func(i int, c byte) error {
		switch {
		case c == '.' && i == tokenStart:
			return errors.New("empty token")
		case c == '.':
			tokenStart = i + 1
		case c == '*' || c == '>':
			return fmt.Errorf("wildcard %q", c)
		case c == '$' && i == 0:
			return errors.New("subjects that begin with $ belong to the server")
		case c == '}' || c <= ' ' || c >= 0x7f:
			return fmt.Errorf("character %q", c)
		}
		return nil
	}, func(name string, _ bool) (string, Field, error) {
		if name == "cluster" {
			return string(appendToken(nil, cluster)), FieldLiteral, nil
		}
		f, ok := map[string]Field{
			"group":     FieldGroup,
			"resource":  FieldResource,
			"namespace": FieldNamespace,
			"name":      fieldName,
		}[name]
		if !ok {
			return "", f,
				fmt.Errorf("unknown placeholder {%s}, known are {cluster}, {group}, {resource}, {namespace} and {name}",
					name)
		}
		return "", f, nil
	})
	switch {
	case err != nil:
		return nil, err
	case tokenStart == len(template):
		return nil, fmt.Errorf("at byte %d: empty token", len(template))
	case parts[0].Field != FieldLiteral || len(parts) > 1 && !strings.Contains(parts[0].Text, "."):
		return nil,
			errors.New(
				"at byte 0: the first token must be fixed: otherwise the stream would have to include every subject")
	}
	longest := 0
	for _, p := range parts {
		longest += len(p.Text)
		if p.Field != FieldLiteral {
			longest += maxToken
		}
	}
	if longest > maxSubject {
		return nil, fmt.Errorf("yields subjects of up to %d bytes, allowed are %d", longest, maxSubject)
	}
	return parts, nil
}

func appendParts(dst []byte, parts []Part, r *object.Resource, namespace, name string) []byte {
	for i := range parts {
		switch parts[i].Field {
		case FieldLiteral:
			dst = append(dst, parts[i].Text...)
		case FieldGroup:
			dst = appendGroup(dst, r.Group)
		case FieldResource:
			dst = appendToken(dst, r.Name)
		case FieldNamespace:
			dst = appendNamespace(dst, namespace)
		case fieldName:
			dst = appendToken(dst, name)
		}
	}
	return dst
}

// Token returns the value of a placeholder in a subject. field is its name: group, resource,
// namespace or name.
func Token(field, value string) string {
	switch field {
	case "group":
		return string(appendGroup(nil, value))
	case "namespace":
		return string(appendNamespace(nil, value))
	}
	return string(appendToken(nil, value))
}

// pattern returns the narrowest wildcard that matches all subjects of parts.
func pattern(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Field == FieldLiteral {
			b.WriteString(p.Text)
		} else {
			b.WriteByte('*')
		}
	}
	tokens := strings.Split(b.String(), ".")
	for i, t := range tokens {
		if strings.Contains(t, "*") { // a placeholder within a token: "v1-{name}"
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// capture returns the literal tokens up to the first that varies, and ">" in place of the rest.
func capture(parts []Part) string {
	p := pattern(parts)
	if i := strings.IndexByte(p, '*'); i >= 0 {
		return p[:i] + ">"
	}
	return p
}

// Covers reports whether every subject that matches inner matches outer too.
func Covers(outer, inner string) bool {
	o, in := strings.Split(outer, "."), strings.Split(inner, ".")
	for i, t := range o {
		switch {
		case t == ">":
			return len(in) > i
		case i >= len(in), in[i] == ">":
			return false
		case t != "*" && t != in[i]:
			return false
		}
	}
	return len(o) == len(in)
}

// Overlap reports whether a subject can match both a and b.
func Overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		switch x, y := as[i], bs[i]; {
		case x == ">" || y == ">":
			return true
		case x != y && x != "*" && y != "*":
			return false
		}
	}
	return len(as) == len(bs)
}

// plain is the set of bytes that are not escaped in a token.
var plain = func() (set [256]bool) { //nolint:gochecknoglobals // a constant; Go has no constant arrays
	for c := range 256 {
		b := byte(c)
		set[c] = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' ||
			strings.IndexByte("_-:=", b) >= 0
	}
	return set
}()

const hexDigits = "0123456789ABCDEF"

// appendToken appends s, with every byte outside A-Za-z0-9_-:= percent-encoded, and shortens it if
// it is too long.
func appendToken(dst []byte, s string) []byte {
	start := len(dst)
	for i := range len(s) {
		if c := s[i]; plain[c] {
			dst = append(dst, c)
		} else {
			dst = appendEscaped(dst, c)
		}
	}
	if n := len(dst) - start; n == 0 || n > maxToken {
		return appendSum(dst, start, s)
	}
	return dst
}

// appendSum cuts the token at dst[start:] to at most cutToken bytes, never inside an escape, and
// appends '~' and the sum of s. A token without a sum never contains '~', which is escaped. Empty
// tokens get a sum too, because NATS does not allow them.
func appendSum(dst []byte, start int, s string) []byte {
	if cut := start + cutToken; len(dst) > cut {
		switch { // '%' only ever begins an escape
		case dst[cut-1] == '%':
			cut--
		case dst[cut-2] == '%':
			cut -= 2
		}
		dst = dst[:cut]
	}
	sum := sha256.Sum256([]byte(s))
	dst = append(dst, '~')
	return hex.AppendEncode(dst, sum[:])
}

// appendGroup appends an API group: dots become '_' (so '_', which no group contains, is escaped),
// and "" becomes "core".
func appendGroup(dst []byte, group string) []byte {
	switch group {
	case "":
		return append(dst, "core"...)
	case "core":
		return append(dst, "%63ore"...)
	}
	start := len(dst)
	for i := range len(group) {
		switch c := group[i]; {
		case c == '.':
			dst = append(dst, '_')
		case plain[c] && c != '_':
			dst = append(dst, c)
		default:
			dst = appendEscaped(dst, c)
		}
	}
	if len(dst)-start > maxToken {
		return appendSum(dst, start, group)
	}
	return dst
}

// appendNamespace appends a namespace, or "_" for none.
func appendNamespace(dst []byte, namespace string) []byte {
	switch namespace {
	case "":
		return append(dst, '_')
	case "_":
		return append(dst, "%5F"...)
	}
	return appendToken(dst, namespace)
}

func appendEscaped(dst []byte, c byte) []byte {
	return append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
}
