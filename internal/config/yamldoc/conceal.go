package yamldoc

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// concealed is a variable whose value is in the document. The value may be a secret.
type concealed struct {
	name  string
	parts map[string]bool // in lower case, all of the same length
	size  int             // of a part
}

// leastSecret is the length of the shortest value that Conceal finds. A shorter one is part of many
// words.
const leastSecret = 4

// newConcealed returns the variable with the parts of its value. Conceal finds each part of at
// least 6 bytes.
func newConcealed(name, value string) concealed {
	c := concealed{name: name, parts: map[string]bool{}, size: min(len(value), 6)}
	if len(value) < leastSecret {
		return c
	}
	for _, form := range []string{value, strconv.Quote(value)} { // errors may have either
		form = lowerASCII(form)
		for i := 0; i+c.size <= len(form); i++ {
			c.parts[form[i:i+c.size]] = true
		}
	}
	return c
}

// lowerASCII returns a text of the same length.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Conceal replaces what came from the environment by ${NAME}: the value of a variable in the
// document, and each part of it. Texts derived from it, such as 1h for 3600s, stay.
func (d *Document) Conceal(text string) string {
	written := variable.FindAllStringIndex(text, -1)
	low := lowerASCII(text)
	var b strings.Builder
	for i := 0; i < len(text); {
		if len(written) > 0 && i == written[0][0] {
			b.WriteString(text[i:written[0][1]])
			i, written = written[0][1], written[1:]
			continue
		}
		end := len(text)
		if len(written) > 0 {
			end = written[0][0]
		}
		name, size := d.concealedAt(low[i:end])
		if size == 0 {
			b.WriteByte(text[i])
			i++
			continue
		}
		b.WriteString("${" + name + "}")
		i += size
	}
	return b.String()
}

// concealedAt returns the variable whose value, or a part of it, a text begins with, and the length
// of the longest such part.
func (d *Document) concealedAt(low string) (name string, size int) {
	for i := range d.concealed {
		c := &d.concealed[i]
		n := 0
		for c.size > 0 && n+c.size <= len(low) && c.parts[low[n:n+c.size]] {
			n++
		}
		if n > 0 && n+c.size-1 > size {
			name, size = c.name, n+c.size-1
		}
	}
	return name, size
}

// ConcealStrings applies Conceal to all strings that v, a pointer, leads to by exported fields,
// pointers and slices.
func (d *Document) ConcealStrings(v any) {
	if len(d.concealed) > 0 {
		d.concealStrings(reflect.ValueOf(v))
	}
}

func (d *Document) concealStrings(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			d.concealStrings(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			d.concealStrings(v.Field(i))
		}
	case reflect.Slice:
		if v.CanSet() && !v.IsNil() { // the configuration may have the same slice
			v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
		}
		for i := range v.Len() {
			d.concealStrings(v.Index(i))
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(d.Conceal(v.String()))
		}
	default:
	}
}

// concealError replaces values of variables in the message of an error. An error about a value ends
// with what was got: the names of the variables take its place.
func (d *Document) concealError(e *Error) {
	names := d.variables[e.Path]
	if len(names) == 0 {
		e.Message = d.Conceal(e.Message)
		return
	}
	says, _, got := strings.Cut(e.Message, ", got ")
	e.Message = d.Conceal(says)
	switch {
	case got:
		e.Message += ", got the value of " + strings.Join(names, " and ")
	case !strings.Contains(e.Message, names[0]):
		e.Message += "; its value is that of " + strings.Join(names, " and ")
	}
}

// noteVariables records the variables in the text at a path.
func (d *Document) noteVariables(path, text string, lookup func(string) (string, bool)) {
	for _, m := range variable.FindAllString(text, -1) {
		if len(m) < len("${N}") {
			continue
		}
		name := m[2 : len(m)-1]
		if !slices.Contains(d.variables[path], m) {
			d.variables[path] = append(d.variables[path], m)
		}
		known := func(c concealed) bool { return c.name == name }
		if value, ok := lookup(name); ok && !slices.ContainsFunc(d.concealed, known) {
			d.concealed = append(d.concealed, newConcealed(name, value))
		}
	}
}
