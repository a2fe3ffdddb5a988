package object

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// Scanned has the metadata that a Scanner read from an object. Texts are unescaped, and nil if the
// object lacks the member. They alias the scanned bytes or the Scanner, and are valid until its
// next call.
type Scanned struct {
	APIVersion, Kind, Namespace, Name, UID, ResourceVersion []byte

	// Hides: copies of Secrets were found in the object and removed, at places that no path names.
	Hides bool
	// Redacted: values at paths that are redacted, or those of a copy of a Secret, were removed or
	// replaced. A null, and an empty object or array, are no value.
	Redacted bool
	// Levels is the nesting of the object without what was cut; the object itself is one level.
	Levels int
	// Managed summarizes the newest entries of metadata.managedFields.
	Managed Stamp
	// Managers are the entries of metadata.managedFields in order, whether or not they are cut.
	Managers []ManagedField
}

// CopyManagers returns a Scanned that has the managers of m and nothing else. It shares no memory
// with m.
func (m *Scanned) CopyManagers() *Scanned {
	c := &Scanned{Managers: slices.Clone(m.Managers)}
	for i := range c.Managers {
		f := &c.Managers[i]
		for _, text := range []*[]byte{&f.Manager, &f.Operation, &f.Subresource, &f.Time} {
			*text = bytes.Clone(*text)
		}
	}
	return c
}

// ManagedField is an entry of metadata.managedFields without its fields.
type ManagedField struct {
	Manager, Operation, Subresource, Time []byte

	At int64 // Time in seconds since 1970, 0 if Time is missing or not valid RFC 3339
}

// Stamp summarizes the newest entries of metadata.managedFields. The bits above stampBits hold
// their time, in seconds since 1970 (the API server writes no fractions). Each entry of that
// second, and each entry without a time (a scale subresource creates those), sets one lower bit,
// selected by a hash of its manager. 0: there are no entries.
type Stamp int64

const stampBits = 24

// At returns the newest time, in seconds since 1970.
func (s Stamp) At() int64 { return int64(s >> stampBits) }

// lacks reports whether an entry is newer than the entries in s. The entry's fields do not matter:
// an entry loses fields when another manager takes them over. Two entries of one second may set the
// same bit: then a new entry is missed, but an old one never counts as new.
func (s Stamp) lacks(f *ManagedField) bool {
	return f.At > s.At() || (f.At == s.At() && f.At != 0 || f.isTimeless()) && s&f.bit() == 0
}

// isTimeless reports whether the entry has a manager but no time.
func (f *ManagedField) isTimeless() bool { return f.At == 0 && len(f.Manager) > 0 }

func (f *ManagedField) bit() Stamp {
	sum := crc32.ChecksumIEEE(f.Manager)
	sum = crc32.Update(sum, crc32.IEEETable, f.Operation)
	sum = crc32.Update(sum, crc32.IEEETable, f.Subresource)
	return 1 << (sum % stampBits)
}

// stamp returns the Stamp of the current entries.
func (m *Scanned) stamp() Stamp {
	var at int64
	for i := range m.Managers {
		at = max(at, m.Managers[i].At)
	}
	s := Stamp(at << stampBits)
	for i := range m.Managers {
		if f := &m.Managers[i]; f.At == at && at != 0 || f.isTimeless() {
			s |= f.bit()
		}
	}
	return s
}

// AppendChangedBy appends the entries that the version with the stamp before did not have. These
// have a later time, or belong to another manager and have the same time (controllers react to a
// person within the second) or none. It appends a JSON array,
// [{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:00Z"}], or nothing if
// there are none, so that a nil dst stays nil.
func (m *Scanned) AppendChangedBy(dst []byte, before Stamp) []byte {
	open := byte('[')
	for i := range m.Managers {
		f := &m.Managers[i]
		if !before.lacks(f) {
			continue
		}
		if dst == nil {
			dst = make([]byte, 0, 128) // one entry
		}
		dst = append(dst, open)
		dst = jsonscan.AppendString(append(dst, `{"manager":`...), f.Manager)
		dst = jsonscan.AppendString(append(dst, `,"operation":`...), f.Operation)
		if f.At != 0 {
			dst = jsonscan.AppendString(append(dst, `,"time":`...), f.Time)
		}
		dst = append(dst, '}')
		open = ','
	}
	if open == '[' {
		return dst
	}
	return append(dst, ']')
}

// Scanner reads objects one after another. It belongs to one goroutine.
type Scanner struct {
	cut, holding *node
	copies       *copyFinder // nil: no search
	uses         *Uses
	stack        jsonscan.Nesting

	// State of the current scan:
	raw     []byte
	dst     []byte
	copied  int // raw[:copied] is in dst, or cut
	m       Scanned
	scratch []byte // unescaped texts
	splice  []byte
	err     error   // why a traversal ended, unless by a syntax error
	hasher  *hasher // nil if nothing is replaced
	path    []byte  // the current path, while the value or a part of it may be replaced
}

// NewScanner returns a Scanner that applies c. A nil c cuts nothing.
func NewScanner(c *Cutter) *Scanner {
	s := &Scanner{}
	if c != nil {
		s.cut, s.uses = c.root, c.uses
		if s.cut.hashes {
			s.hasher = newHasher(c.mac)
		}
		if c.holding != nil {
			s.holding, s.copies = c.holding, newCopyFinder(&c.copies)
		}
	}
	return s
}

// Scan appends the object in raw, without the cut paths, to dst (which must not overlap raw), and
// reads its metadata in the same pass. If the object lacks kind or apiVersion, as items of built-in
// types in a list do, Scan inserts the given ones, unless they are "". They are the first members,
// as in a watch of the API server: {"kind":"Pod","apiVersion":"v1",…
//
// An error is jsonscan.ErrTruncated, a *jsonscan.SyntaxError, or names the member with a wrong
// type; then out is dst. Missing or null members are not an error: a bookmark has no name.
func (s *Scanner) Scan(dst, raw []byte, kind, apiVersion string) (out []byte, m *Scanned, err error) {
	out, m, err = s.scan(dst, raw, s.cut, kind, apiVersion)
	if err != nil || s.copies == nil || !s.copies.isSuspect(out[len(dst):]) {
		return out, m, err
	}
	without, found := s.copies.redact(raw)
	if !found {
		return out, m, nil
	}
	out, m, err = s.scan(dst, without, s.holding, kind, apiVersion)
	if err == nil {
		m.Hides = true
		m.Redacted = m.Redacted || len(s.copies.found) > 0
	}
	return out, m, err
}

// scan is Scan with the tree of paths that are cut.
func (s *Scanner) scan(dst, raw []byte, cut *node, kind, apiVersion string) (out []byte, m *Scanned, err error) {
	const keep = 64 << 10
	if cap(s.scratch) > keep {
		s.scratch = nil
	}
	s.raw = raw
	s.dst = dst
	s.err = nil
	s.stack.Deepest = 0
	s.m = Scanned{Managers: s.m.Managers[:0]}
	s.scratch, s.path = s.scratch[:0], s.path[:0]
	defer s.forget()

	start := jsonscan.SkipSpace(raw, 0)
	if start == len(raw) {
		return dst, nil, jsonscan.ErrTruncated
	}
	s.copied = start
	end := s.value(start, cut, theObject, 0)
	if end >= 0 && jsonscan.SkipSpace(raw, end) != len(raw) {
		end = ^jsonscan.SkipSpace(raw, end)
	}
	if s.err != nil {
		return dst, nil, s.err
	}
	if end < 0 {
		return dst, nil, jsonscan.ErrorAt(raw, end)
	}
	out = append(s.dst, raw[s.copied:end]...)
	if s.hasher != nil {
		s.hasher.fill(out, &s.m)
	}
	out = s.spliceType(out, len(dst), kind, apiVersion)
	s.uses.noteRead()
	s.m.Managed, s.m.Levels = s.m.stamp(), s.stack.Deepest
	return out, &s.m, nil
}

// forget releases the caller's memory, which may be large.
func (s *Scanner) forget() {
	s.raw, s.dst = nil, nil
	if s.hasher != nil {
		s.hasher.reset()
	}
}

// spliceType adds kind and apiVersion to the object at out[at:] if it lacks them.
func (s *Scanner) spliceType(out []byte, at int, kind, apiVersion string) []byte {
	needKind, needVersion := s.m.Kind == nil && kind != "", s.m.APIVersion == nil && apiVersion != ""
	if !needKind && !needVersion {
		return out
	}
	s.splice = s.splice[:0]
	if needKind {
		s.splice = append(jsonscan.AppendString(append(s.splice, `"kind":`...), kind), ',')
		s.m.Kind = s.keep(kind)
	}
	if needVersion {
		s.splice = append(jsonscan.AppendString(append(s.splice, `"apiVersion":`...), apiVersion), ',')
		s.m.APIVersion = s.keep(apiVersion)
	}
	at++ // after the brace
	if out[jsonscan.SkipSpace(out, at)] == '}' {
		s.splice = s.splice[:len(s.splice)-1]
	}
	return slices.Insert(out, at, s.splice...)
}

func (s *Scanner) keep(text string) []byte {
	start := len(s.scratch)
	s.scratch = append(s.scratch, text...)
	return s.scratch[start:len(s.scratch):len(s.scratch)]
}

// role is the meaning of a value for the pipeline.
type role uint8

const (
	nothing role = iota
	theObject
	metadata
	managedFields
	managedField

	// Texts that identify the object: a value of another type is an error.
	kindText
	apiVersionText
	namespaceText
	nameText
	uidText
	resourceVersionText

	// Texts of the last entry of Managers. changedBy is optional: invalid values are skipped.
	managerText
	operationText
	subresourceText
	timeText
)

func (r role) String() string {
	switch r {
	case theObject:
		return "the value"
	case metadata:
		return "metadata"
	case kindText:
		return "kind"
	case apiVersionText:
		return "apiVersion"
	case namespaceText:
		return "metadata.namespace"
	case nameText:
		return "metadata.name"
	case uidText:
		return "metadata.uid"
	case resourceVersionText:
		return "metadata.resourceVersion"
	}
	return "a member of metadata.managedFields"
}

// member returns the role of a member of an object with the role r.
func (r role) member(name []byte) role {
	switch r {
	case theObject:
		switch string(name) {
		case "kind":
			return kindText
		case "apiVersion":
			return apiVersionText
		case "metadata":
			return metadata
		}
	case metadata:
		switch string(name) {
		case "namespace":
			return namespaceText
		case "name":
			return nameText
		case "uid":
			return uidText
		case "resourceVersion":
			return resourceVersionText
		case "managedFields":
			return managedFields
		}
	case managedField:
		switch string(name) {
		case "manager":
			return managerText
		case "operation":
			return operationText
		case "subresource":
			return subresourceText
		case "time":
			return timeText
		}
	}
	return nothing
}

// value traverses the value at raw[i] with the role r; n has the paths that continue inside it.
// Like skip it returns the end of the value, or the complement of the offset of a syntax error;
// s.err takes precedence. Its recursion is no deeper than the longest path.
func (s *Scanner) value(i int, n *node, r role, depth int) int {
	if i >= len(s.raw) {
		return ^len(s.raw)
	}
	c := s.raw[i]
	if r != nothing && !s.begin(r, c) {
		return ^i
	}
	switch {
	case c == '{' && (n.continues() || r == theObject || r == metadata || r == managedField):
		return s.object(i, n, r, depth+1)
	case c == '[' && (n != nil && n.each != nil || r == managedFields):
		return s.array(i, n, r, depth+1)
	case c == '"' && r >= kindText:
		end := jsonscan.SkipString(s.raw, i+1)
		if end > 0 {
			s.set(r, s.text(s.raw[i+1:end-1]))
		}
		return end
	default:
		return s.stack.Skip(s.raw, i, depth)
	}
}

// begin clears what an earlier member with the same name set (the last one counts), and reports
// whether a value that starts with c may have the role r.
func (s *Scanner) begin(r role, c byte) bool {
	ok := true
	switch r {
	case theObject:
		ok = c == '{'
	case metadata:
		ok = c == '{' || c == 'n'
		s.m = Scanned{APIVersion: s.m.APIVersion, Kind: s.m.Kind, Managers: s.m.Managers[:0]}
	case managedFields:
		s.m.Managers = s.m.Managers[:0]
	case managedField:
		s.m.Managers = append(s.m.Managers, ManagedField{})
	case kindText, apiVersionText:
		ok = c == '"' // a null would stay beside the inserted member
	case namespaceText, nameText, uidText, resourceVersionText:
		ok = c == '"' || c == 'n'
		s.set(r, nil)
	default:
		s.set(r, nil)
	}
	if !ok {
		what := "an object"
		if r >= kindText {
			what = "a string"
		}
		s.err = fmt.Errorf("%v is not %s", r, what)
	}
	return ok
}

func (s *Scanner) set(r role, text []byte) {
	switch r {
	case kindText:
		s.m.Kind = text
	case apiVersionText:
		s.m.APIVersion = text
	case namespaceText:
		s.m.Namespace = text
	case nameText:
		s.m.Name = text
	case uidText:
		s.m.UID = text
	case resourceVersionText:
		s.m.ResourceVersion = text
	case managerText:
		s.last().Manager = text
	case operationText:
		s.last().Operation = text
	case subresourceText:
		s.last().Subresource = text
	case timeText:
		s.last().Time, s.last().At = text, unixTime(text)
	}
}

func (s *Scanner) last() *ManagedField { return &s.m.Managers[len(s.m.Managers)-1] }

// text returns the text of a JSON string with the given inside.
func (s *Scanner) text(inside []byte) []byte {
	if !jsonscan.Escaped(inside) {
		return inside
	}
	start := len(s.scratch)
	s.scratch = jsonscan.AppendUnescaped(s.scratch, inside)
	return s.scratch[start:len(s.scratch):len(s.scratch)]
}
