package selection

import (
	"fmt"

	"github.com/kubecdc/kubecdc/internal/object"
)

// head has the parts of an object by which clauses match it. It is reused.
type head struct {
	object.Head

	raw []byte
}

// read reads raw, which the head refers to until the next call.
func (h *head) read(raw []byte) error {
	h.raw = raw
	if err := h.Peek(raw); err != nil {
		return fmt.Errorf("read an object: %w", err)
	}
	return nil
}

func (h *head) namespace() string { return string(h.Namespace) }

// field returns the text of a value, "" if there is none.
func (h *head) field(path *object.Path) string {
	raw, err := object.Locate(h.raw, path)
	if err != nil || raw == nil || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' {
		return string(object.AppendUnescaped(nil, raw[1:len(raw)-1]))
	}
	return string(raw)
}

// Match is the result of matching an object with a scope.
type Match struct {
	Clause   uint16 // the clause that takes it, or Outside
	Excluded bool   // no clause can ever take it: it is in a namespace that none takes
}

// Match finds the clause that takes an object.
func (s *Scope) Match(raw []byte) (Match, error) {
	var h head
	if err := h.read(raw); err != nil {
		return Match{}, err
	}
	return s.match(&h), nil
}

func (s *Scope) match(h *head) Match {
	for n := range s.clauses {
		if s.clauses[n].matches(h) {
			return Match{Clause: uint16(n)}
		}
	}
	return Match{Clause: Outside, Excluded: !s.namespaces(h.namespace())}
}

// Scanner reads the objects of a scope, and cuts and redacts each as the clause that takes it does. For one goroutine.
type Scanner struct {
	scope    *Scope
	scanners []*object.Scanner // one for each clause, and one for what none takes; nil: not needed yet
	head     head
}

// NewScanner returns a scanner of the scope's objects.
func (s *Scope) NewScanner() *Scanner {
	return &Scanner{scope: s, scanners: make([]*object.Scanner, len(s.clauses)+1)}
}

// Scan appends the object raw to dst, as object.Scanner.Scan does. raw is not kept. m is valid until the next call. If the scope
// has one clause, the API server has applied its selectors, and only the namespace is compared.
func (s *Scanner) Scan(dst, raw []byte) (out []byte, m *object.Scanned, match Match, err error) {
	r := s.scope.Resource
	if s.scope.isShared() { // the clause has to be known before anything is copied: it decides what is redacted
		if err := s.head.read(raw); err != nil {
			return dst, nil, Match{}, err
		}
		match = s.scope.match(&s.head)
	}
	out, m, err = s.of(match.Clause).Scan(dst, raw, r.Kind, r.APIVersion())
	if err == nil && !s.scope.isShared() && r.Namespaced {
		match.Excluded = !s.scope.namespaces(string(m.Namespace))
	}
	return out, m, match, err
}

// of returns the scanner that cuts and redacts as a clause does, or (Outside) as all of them do together.
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
