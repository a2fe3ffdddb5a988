package selection

import (
	"fmt"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// field returns the text of a value of an object, "" if there is none.
func field(raw []byte, path *object.Path) string {
	value, err := object.Locate(raw, path)
	switch {
	case err != nil || value == nil || string(value) == "null":
		return ""
	case value[0] == '"':
		return string(jsonscan.AppendUnescaped(nil, value[1:len(value)-1]))
	}
	return string(value)
}

// Match is the result of matching an object with a scope.
type Match struct {
	Clause   uint16 // the clause that takes it, or Outside
	Excluded bool   // no clause can ever take it: it is in a namespace that none takes
}

// Match finds the clause that takes an object.
func (s *Scope) Match(raw []byte) (Match, error) { return s.match(raw, new(object.Head)) }

// match is Match with a reused head, which refers to raw until the next call.
func (s *Scope) match(raw []byte, h *object.Head) (Match, error) {
	if err := h.Peek(raw); err != nil {
		return Match{}, fmt.Errorf("read an object: %w", err)
	}
	for n := range s.clauses {
		if s.clauses[n].matches(h, raw) {
			return Match{Clause: uint16(n)}, nil
		}
	}
	return Match{Clause: Outside, Excluded: !s.namespaces(string(h.Namespace))}, nil
}

// Scanner reads the objects of a scope, and cuts and redacts each by the clause that takes it. It
// must be used by one goroutine only.
type Scanner struct {
	scope    *Scope
	scanners []*object.Scanner // one for each clause, and one for objects that none takes; nil: not needed yet
	head     object.Head
}

// NewScanner returns a scanner of the scope's objects.
func (s *Scope) NewScanner() *Scanner {
	return &Scanner{scope: s, scanners: make([]*object.Scanner, len(s.clauses)+1)}
}

// Scan appends the object raw to dst, as object.Scanner.Scan does. It does not keep raw. m is valid
// until the next call. If the scope has one clause, the API server has applied its selectors, and
// Scan compares only the namespace.
func (s *Scanner) Scan(dst, raw []byte) (out []byte, m *object.Scanned, match Match, err error) {
	r := s.scope.Resource
	if s.scope.isShared() { // it needs the clause before it copies anything: the clause decides what is redacted
		match, err = s.scope.match(raw, &s.head)
		if err != nil {
			return dst, nil, match, err
		}
	}
	out, m, err = s.of(match.Clause).Scan(dst, raw, r.Kind, r.APIVersion())
	if err == nil && !s.scope.isShared() && r.Namespaced {
		match.Excluded = !s.scope.namespaces(string(m.Namespace))
	}
	return out, m, match, err
}

// of returns the scanner that cuts and redacts by a clause, or (Outside) by all of them together.
func (s *Scanner) of(clause uint16) *object.Scanner {
	n := min(int(clause), len(s.scope.clauses))
	if s.scanners[n] == nil {
		cutter := s.scope.rest
		if n < len(s.scope.clauses) {
			cutter = s.scope.clauses[n].cutter
		}
		s.scanners[n] = object.NewScanner(cutter)
	}
	return s.scanners[n]
}
