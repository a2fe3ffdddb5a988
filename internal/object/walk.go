package object

import "github.com/kubecdc/kubecdc/internal/object/jsonscan"

// object traverses the object whose brace is raw[i].
func (s *Scanner) object(i int, n *node, r role, depth int) int {
	if depth > jsonscan.MaxDepth {
		return ^i
	}
	s.stack.Deepest = max(s.stack.Deepest, depth)
	i++
	g, here := gap{end: i}, len(s.path)
	i = jsonscan.SkipSpace(s.raw, i)
	if i < len(s.raw) && s.raw[i] == '}' {
		return i + 1
	}
	for {
		at := i
		if at >= len(s.raw) {
			return ^len(s.raw)
		}
		if s.raw[at] != '"' {
			return ^at
		}
		i = jsonscan.SkipString(s.raw, i+1)
		if i < 0 {
			return i
		}
		mark := len(s.scratch)
		name := s.text(s.raw[at+1 : i-1])
		child, what := n.member(name), r.member(name)
		if child != nil && child.hashes {
			s.path = appendName(s.path[:here], name) // overwrites the name of the previous member
		}
		s.scratch = s.scratch[:mark]
		i = jsonscan.SkipColon(s.raw, i)
		if i < 0 {
			return i
		}
		i = s.element(i, child, what, depth, &g)
		if i < 0 {
			return i
		}
		i, at = s.next(i, '}', &g)
		if at < 0 {
			return i
		}
	}
}

// array traverses the array whose bracket is raw[i].
func (s *Scanner) array(i int, n *node, r role, depth int) int {
	if depth > jsonscan.MaxDepth {
		return ^i
	}
	s.stack.Deepest = max(s.stack.Deepest, depth)
	i++
	g := gap{end: i}
	i = jsonscan.SkipSpace(s.raw, i)
	if i < len(s.raw) && s.raw[i] == ']' {
		return i + 1
	}
	var child *node
	if n != nil {
		child = n.each
	}
	here := len(s.path)
	for more := 0; more >= 0; {
		if child != nil && child.hashes {
			s.path = append(s.path[:here], "[*]"...)
		}
		what := nothing
		if r == managedFields && i < len(s.raw) && s.raw[i] == '{' {
			what = managedField
		}
		i = s.element(i, child, what, depth, &g)
		if i < 0 {
			return i
		}
		i, more = s.next(i, ']', &g)
	}
	return i
}

// gap keeps the commas around cut elements correct: the comma before an element is cut too or,
// while no element before it is kept, the comma after it.
type gap struct {
	end  int  // the end of the last kept element, or of the opening bracket
	kept bool // an element has been kept
}

// element traverses one value of a container. If a path ends here, it cuts the value with its name,
// or replaces it.
func (s *Scanner) element(i int, n *node, r role, depth int, g *gap) int {
	if n == nil || n.fate == kept {
		i = s.value(i, n, r, depth)
		if i >= 0 {
			g.end, g.kept = i, true
		}
		return i
	}
	for _, mark := range n.matched {
		set(mark)
	}
	// Nothing inside a cut value is cut, but the pipeline may need to read it.
	start, deepest := i, s.stack.Deepest
	i = s.value(i, nil, r, depth)
	if i < 0 {
		return i
	}
	s.stack.Deepest = deepest
	s.m.Redacted = s.m.Redacted || n.redacts && hasContent(s.raw, start)
	if n.fate == replaced {
		s.replace(start, i)
		g.end, g.kept = i, true
		return i
	}
	if s.copied < g.end {
		s.dst = append(s.dst, s.raw[s.copied:g.end]...)
	}
	s.copied = i
	return i
}

// hasContent reports whether the value at raw[i] is more than null, or an object or array without
// members.
func hasContent(raw []byte, i int) bool {
	switch raw[i] {
	case 'n':
		return false
	case '{', '[':
		return raw[jsonscan.SkipSpace(raw, i+1)] != raw[i]+2 // '}' and ']' are '{'+2 and '['+2
	}
	return true
}

// next advances to the next element of a container (more >= 0), or to its end (more < 0; then i has
// the result of skip).
func (s *Scanner) next(i int, closing byte, g *gap) (_, more int) {
	i = jsonscan.SkipSpace(s.raw, i)
	switch {
	case i >= len(s.raw):
		return ^len(s.raw), -1
	case s.raw[i] == closing:
		return i + 1, -1
	case s.raw[i] != ',':
		return ^i, -1
	}
	i++
	if !g.kept {
		s.copied = i // all elements so far have been cut, with the comma after them
	}
	return jsonscan.SkipSpace(s.raw, i), 0
}
