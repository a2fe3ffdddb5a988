package object

// object walks the object whose brace is raw[i].
func (s *Scanner) object(i int, n *node, r role, depth int) int {
	if depth > maxDepth {
		return ^i
	}
	i++
	g, here := gap{end: i}, len(s.path)
	i = skipSpace(s.raw, i)
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
		if i = skipString(s.raw, i+1); i < 0 {
			return i
		}
		mark := len(s.scratch)
		name := s.text(s.raw[at+1 : i-1])
		child, what := n.member(name), r.member(name)
		if child != nil && child.hashes {
			s.path = appendName(s.path[:here], name) // over what the member before has left
		}
		s.scratch = s.scratch[:mark]
		if i = skipColon(s.raw, i); i < 0 {
			return i
		}
		if i = s.element(i, child, what, depth, &g); i < 0 {
			return i
		}
		if i, at = s.next(i, '}', &g); at < 0 {
			return i
		}
	}
}

// array walks the array whose bracket is raw[i].
func (s *Scanner) array(i int, n *node, r role, depth int) int {
	if depth > maxDepth {
		return ^i
	}
	i++
	g := gap{end: i}
	i = skipSpace(s.raw, i)
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
		if i = s.element(i, child, what, depth, &g); i < 0 {
			return i
		}
		i, more = s.next(i, ']', &g)
	}
	return i
}

// gap keeps commas right around what is cut: the comma before it goes too, or, as long as nothing before it is kept,
// the one behind.
type gap struct {
	end  int  // where what has been kept last ends, or the container has been opened
	kept bool // something has been kept
}

// element walks one value of a container. Where a path ends here it cuts it, with its name, or replaces it.
func (s *Scanner) element(i int, n *node, r role, depth int, g *gap) int {
	if n == nil || n.fate == kept {
		if i = s.value(i, n, r, depth); i >= 0 {
			g.end, g.kept = i, true
		}
		return i
	}
	// Inside of what is cut nothing is to be cut, but the pipeline may want to read it.
	start := i
	if i = s.value(i, nil, r, depth); i < 0 {
		return i
	}
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

// next goes on to the next element of a container (more >= 0), or to its end (more < 0; then i is as skip returns it).
func (s *Scanner) next(i int, closing byte, g *gap) (_, more int) {
	i = skipSpace(s.raw, i)
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
		s.copied = i // all so far has been cut, with the comma behind it
	}
	return skipSpace(s.raw, i), 0
}
