package object

import (
	"bytes"
	"errors"
	"slices"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// Mask names the parts of objects that a comparison ignores. Immutable; a nil Mask ignores nothing.
type Mask struct{ root *node }

// NewMask compiles paths as NewCutter does, but accepts fields that identify an object. It returns
// all errors at once, a *PathError each.
func NewMask(paths ...string) (*Mask, error) {
	root := &node{}
	var errs []error
	for _, path := range paths {
		segments, err := parsePath(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		root.add(segments, removed, nil)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	root, err := root.compile()
	return &Mask{root}, err
}

func (m *Mask) node() *node {
	if m == nil || m.root.isIdle() {
		return nil
	}
	return m.root
}

// SameBut reports whether two JSON values returned by Scan are the same except for the paths in
// mask. The order of members, white space and escapes do not matter; numbers are the same if they
// are written alike. A masked member counts as absent, but the presence of the object around it
// matters.
//
// In the common case it allocates nothing. If an object has two members with the same name, it may
// report a difference that a reader of the last one does not see, but never misses one. An error
// says where the JSON is wrong; a syntax error after the first difference may go unnoticed.
func SameBut(a, b []byte, mask *Mask) (bool, error) {
	var p pair
	p.a, p.b = cursor{b: a, i: jsonscan.SkipSpace(a, 0)}, cursor{b: b, i: jsonscan.SkipSpace(b, 0)}
	same := p.value(mask.node(), 0, true)
	if err := p.err(); err != nil {
		return false, err
	}
	return same, nil
}

// cursor is a position in a document.
type cursor struct {
	b       []byte
	i       int
	bad     int    // the complement of the offset of the syntax error, 0 if there is none
	name    []byte // of the current member, with its escapes
	scratch []byte // for names and texts with escapes
}

// pair traverses two documents in parallel. The methods return false if they differ, or if one is
// invalid.
type pair struct {
	a, b  cursor
	stack jsonscan.Nesting
}

func (p *pair) err() error {
	for _, c := range []*cursor{&p.a, &p.b} {
		if c.bad != 0 {
			return jsonscan.ErrorAt(c.b, c.bad)
		}
	}
	return nil
}

// at advances to i, which may be the complement of the offset of a syntax error.
func (c *cursor) at(i int) bool {
	if i < 0 {
		c.bad = i
		return false
	}
	c.i = i
	return true
}

// first enters a container, and reports whether it has an element.
func (c *cursor) first(closing byte) bool {
	c.i = jsonscan.SkipSpace(c.b, c.i+1)
	if c.i < len(c.b) && c.b[c.i] == closing {
		c.i++
		return false
	}
	return true
}

// next advances to the next element. It returns false after a syntax error, and at the container's
// end, which it passes.
func (c *cursor) next(closing byte) bool {
	i := jsonscan.SkipSpace(c.b, c.i)
	switch {
	case c.bad != 0:
		return false
	case i >= len(c.b):
		return c.at(^i)
	case c.b[i] == closing:
		c.i = i + 1
		return false
	case c.b[i] != ',':
		return c.at(^i)
	}
	c.i = jsonscan.SkipSpace(c.b, i+1)
	return true
}

// member reads a member's name and advances to its value.
func (c *cursor) member() bool {
	start := c.i
	if start >= len(c.b) || c.b[start] != '"' {
		return c.at(^start)
	}
	end := jsonscan.SkipString(c.b, start+1)
	if end < 0 {
		return c.at(end)
	}
	c.name = c.b[start+1 : end-1]
	return c.at(jsonscan.SkipColon(c.b, end))
}

// text returns the name of the current member, valid until the next call.
func (c *cursor) text() []byte { return c.plain(c.name) }

// kept returns the name of the current member, valid as long as the document.
func (c *cursor) kept() []byte {
	if !jsonscan.Escaped(c.name) {
		return c.name
	}
	return jsonscan.AppendUnescaped(nil, c.name)
}

// value compares the current values; n has the masked paths inside them. With bytesFirst set it
// first tries a comparison of the bytes.
func (p *pair) value(n *node, depth int, bytesFirst bool) bool {
	a, b := &p.a, &p.b
	if a.i >= len(a.b) {
		return a.at(^a.i)
	}
	if b.i >= len(b.b) {
		return b.at(^b.i)
	}
	kind := a.b[a.i]
	if n == nil && bytesFirst {
		end := p.stack.Skip(a.b, a.i, depth)
		if end < 0 {
			return a.at(end)
		}
		value := a.b[a.i:end]
		if bytes.HasPrefix(b.b[b.i:], value) && !numberContinues(kind, b.b[b.i+len(value):]) {
			a.i, b.i = end, b.i+len(value)
			return true
		}
		bytesFirst = false // repeating the comparison at each level would cost one pass per level of nesting
	}
	switch other := b.b[b.i]; {
	case kind == '{':
		return other == '{' && p.object(n, depth+1, bytesFirst)
	case kind == '[':
		return other == '[' && p.array(n, depth+1, bytesFirst)
	case kind == '"':
		return other == '"' && p.text()
	case other == '{' || other == '[' || other == '"':
		return false
	}
	i, j := a.i, b.i
	return a.at(jsonscan.SkipScalar(a.b, i)) && b.at(jsonscan.SkipScalar(b.b, j)) && bytes.Equal(a.b[i:a.i], b.b[j:b.i])
}

// numberContinues reports whether rest continues the number that precedes it.
func numberContinues(kind byte, rest []byte) bool {
	if kind != '-' && (kind < '0' || kind > '9') || len(rest) == 0 {
		return false
	}
	switch c := rest[0]; c {
	case '.', 'e', 'E':
		return true
	default:
		return c >= '0' && c <= '9'
	}
}

// text compares two strings.
func (p *pair) text() bool {
	a, b := &p.a, &p.b
	i, j := a.i+1, b.i+1
	if !a.at(jsonscan.SkipString(a.b, i)) || !b.at(jsonscan.SkipString(b.b, j)) {
		return false
	}
	x, y := a.b[i:a.i-1], b.b[j:b.i-1]
	if bytes.Equal(x, y) {
		return true
	}
	if !jsonscan.Escaped(x) && !jsonscan.Escaped(y) {
		return false
	}
	a.scratch, b.scratch = jsonscan.AppendUnescaped(a.scratch[:0], x), jsonscan.AppendUnescaped(b.scratch[:0], y)
	return bytes.Equal(a.scratch, b.scratch)
}

// skip skips the current value.
func (p *pair) skip(c *cursor, depth int) bool { return c.at(p.stack.Skip(c.b, c.i, depth)) }

func (p *pair) array(n *node, depth int, bytesFirst bool) bool {
	var each *node
	if n != nil {
		each = n.each
	}
	if each != nil && each.fate != kept { // their content does not matter
		return p.skip(&p.a, depth-1) && p.skip(&p.b, depth-1)
	}
	more, other := p.a.first(']'), p.b.first(']')
	for more && other {
		if !p.value(each, depth, bytesFirst) {
			return false
		}
		more, other = p.a.next(']'), p.b.next(']')
	}
	return more == other && p.a.bad == 0 && p.b.bad == 0
}

func (p *pair) object(n *node, depth int, bytesFirst bool) bool {
	more, other := p.a.first('}'), p.b.first('}')
	for {
		a, b := p.a.i, p.b.i
		more, other = more && p.unmasked(&p.a, n, depth), other && p.unmasked(&p.b, n, depth)
		switch {
		case p.a.bad != 0 || p.b.bad != 0:
			return false
		case !more && !other:
			return true
		case !more || !other:
			return false
		case !bytes.Equal(p.a.name, p.b.name) && !bytes.Equal(p.a.text(), p.b.text()):
			// the preceding members are equal: comparing them again would cost one pass per level
			// of nesting
			p.a.i, p.b.i = a, b
			return p.unordered(n, depth, bytesFirst)
		}
		var child *node
		if n != nil {
			child = n.member(p.a.text())
		}
		if !p.value(child, depth, bytesFirst) {
			return false
		}
		more, other = p.a.next('}'), p.b.next('}')
	}
}

// unmasked advances from the name of a member to the value of the next member that is not masked.
// It returns false after a syntax error, and at the object's end, which it passes.
func (p *pair) unmasked(c *cursor, n *node, depth int) bool {
	for c.member() {
		if n == nil {
			return true
		}
		if child := n.member(c.text()); child == nil || child.fate == kept {
			return true
		}
		if !p.skip(c, depth) || !c.next('}') {
			return false
		}
	}
	return false
}

// member is a member of an object whose members are in another order, or an element of an array.
type member struct {
	name  []byte
	index int // of an element
	value int // offset
}

// unordered compares the remaining members of two objects in any order.
func (p *pair) unordered(n *node, depth int, bytesFirst bool) bool {
	as, ok := p.members(&p.a, n, depth)
	if !ok {
		return false
	}
	bs, ok := p.members(&p.b, n, depth)
	if !ok || len(as) != len(bs) {
		return false
	}
	aEnd, bEnd := p.a.i, p.b.i
	for i := range as {
		if !bytes.Equal(as[i].name, bs[i].name) {
			return false
		}
	}
	for i := range as {
		p.a.i, p.b.i = as[i].value, bs[i].value
		if !p.value(n.member(as[i].name), depth, bytesFirst) {
			return false
		}
	}
	p.a.i, p.b.i = aEnd, bEnd
	return true
}

// members returns the remaining unmasked members, sorted by name; duplicates keep their order.
func (p *pair) members(c *cursor, n *node, depth int) ([]member, bool) {
	var members []member
	for more := true; more && p.unmasked(c, n, depth); more = c.next('}') {
		members = append(members, member{name: c.kept(), value: c.i})
		if !p.skip(c, depth) {
			break
		}
	}
	slices.SortStableFunc(members, func(x, y member) int { return bytes.Compare(x.name, y.name) })
	return members, c.bad == 0
}
