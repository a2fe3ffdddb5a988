package object

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// Path is a compiled path to values of an object, written as for NewCutter. Immutable.
type Path struct {
	segments []segment
	text     string
}

// NewPath compiles a path, which may name a field that identifies the object. An error is a
// *PathError.
func NewPath(path string) (*Path, error) {
	segments, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	return &Path{segments, path}, nil
}

// String returns the path as it was given.
func (p *Path) String() string { return p.text }

// Locate returns the value that path names in doc, a JSON object, unchanged; nil if there is none.
// If names repeat, the last member counts; if [*] selects several values, Locate returns the first.
// It does not check the parts of doc that it need not read.
func Locate(doc []byte, path *Path) ([]byte, error) {
	p := pair{a: cursor{b: doc}}
	c := &p.a
	at := p.find(c, jsonscan.SkipSpace(doc, 0), path.segments)
	if at >= 0 {
		c.i = at
		p.skip(c, 0)
	}
	if err := p.err(); err != nil || at < 0 {
		return nil, err
	}
	return doc[at:c.i:c.i], nil
}

// SameAt reports whether two JSON objects returned by Scan have the same values at path, and have
// values at the same places. Values are compared as by SameBut, elements of an array by index,
// members of an object by name.
func SameAt(a, b []byte, path *Path) (bool, error) {
	p := pair{a: cursor{b: a}, b: cursor{b: b}}
	same := p.sameAt(jsonscan.SkipSpace(a, 0), jsonscan.SkipSpace(b, 0), path.segments)
	if err := p.err(); err != nil {
		return false, err
	}
	return same, nil
}

// find returns the offset of the first value that segments select inside the value at i, -1 if
// there is none.
func (p *pair) find(c *cursor, i int, segments []segment) int {
	if len(segments) == 0 {
		return i
	}
	if !segments[0].each {
		i = p.named(c, i, &segments[0])
		if i < 0 {
			return -1
		}
		return p.find(c, i, segments[1:])
	}
	found := -1
	p.each(c, i, func(at int) bool {
		found = p.find(c, at, segments[1:])
		return found < 0
	})
	return found
}

// named returns the offset of the value of the last member with the name, -1 if the value at i is
// not an object or lacks the member.
func (p *pair) named(c *cursor, i int, s *segment) int {
	found := -1
	if i >= len(c.b) || c.b[i] != '{' {
		return found
	}
	c.i = i
	for more := c.first('}'); more && c.member(); more = c.next('}') {
		if string(c.text()) == s.name {
			found = c.i
			if s.quoted != nil && !c.mayContain(s.quoted) {
				return found
			}
		}
		if !p.skip(c, 1) {
			break
		}
	}
	if c.bad != 0 {
		return -1
	}
	return found
}

// mayContain reports whether a name may occur in the rest of the document, quoted or spelled with
// \u. This search is much faster than parsing.
func (c *cursor) mayContain(quoted []byte) bool {
	rest := c.b[min(c.i, len(c.b)):]
	return bytes.Contains(rest, quoted) || bytes.Contains(rest, []byte(`\u`))
}

// each calls do with the offset of each element, or member's value, of the container at i, until do
// returns false.
func (p *pair) each(c *cursor, i int, do func(at int) bool) {
	if i >= len(c.b) || c.b[i] != '{' && c.b[i] != '[' {
		return
	}
	closing := c.b[i] + 2
	c.i = i
	for more := c.first(closing); more; more = c.next(closing) {
		if closing == '}' && !c.member() {
			return
		}
		at := c.i
		if !p.skip(c, 1) {
			return
		}
		end := c.i
		if !do(at) || c.bad != 0 {
			return
		}
		c.i = end
	}
}

// sameAt compares the values that segments select inside the values at i and j; -1 stands for a
// missing value.
func (p *pair) sameAt(i, j int, segments []segment) bool {
	a, b := &p.a, &p.b
	switch {
	case i < 0 || j < 0:
		return (i < 0 || p.find(a, i, segments) < 0) && (j < 0 || p.find(b, j, segments) < 0)
	case len(segments) == 0:
		a.i, b.i = i, j
		return p.value(nil, 0, true)
	case !segments[0].each:
		return p.sameAt(p.named(a, i, &segments[0]), p.named(b, j, &segments[0]), segments[1:])
	}
	as, bs := p.elements(a, i), p.elements(b, j)
	x, y := 0, 0
	for x < len(as) || y < len(bs) {
		i, j = -1, -1
		order := 0
		switch {
		case y == len(bs):
			order = -1
		case x == len(as):
			order = 1
		default:
			order = cmp.Or(bytes.Compare(as[x].name, bs[y].name), cmp.Compare(as[x].index, bs[y].index))
		}
		if order <= 0 {
			i = as[x].value
			x++
		}
		if order >= 0 {
			j = bs[y].value
			y++
		}
		if !p.sameAt(i, j, segments[1:]) {
			return false
		}
	}
	return a.bad == 0 && b.bad == 0
}

// elements returns the elements of an array in order, or the members of an object by name; of
// duplicates the last.
func (p *pair) elements(c *cursor, i int) []member {
	var all []member
	p.each(c, i, func(at int) bool {
		m := member{value: at, index: len(all)}
		if c.b[i] == '{' {
			m.name, m.index = c.kept(), -1
		}
		all = append(all, m)
		return true
	})
	if len(all) == 0 || c.b[i] == '[' {
		return all
	}
	slices.SortStableFunc(all, func(x, y member) int { return bytes.Compare(x.name, y.name) })
	last := all[:0]
	for k := range all {
		if k+1 == len(all) || !bytes.Equal(all[k].name, all[k+1].name) {
			last = append(last, all[k])
		}
	}
	return last
}
