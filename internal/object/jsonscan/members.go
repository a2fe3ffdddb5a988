package jsonscan

// Members reads a JSON document in place, member by member. It decodes only the requested values,
// skips the others, and checks those that it skips as strictly as encoding/json.Valid does. The
// limit of nesting applies to each value by itself, wherever it is in the document. It belongs to
// one goroutine.
//
//	m := jsonscan.NewMembers(doc)
//	if m.Enter('{') {
//		for name, ok := m.Next(); ok; name, ok = m.Next() {
//			… either m.Value(), or m.Enter and all of its members …
//		}
//	}
//	err := m.End()
//
// The first error ends all loops; End returns it.
type Members struct {
	b     []byte
	i     int
	first bool // nothing of the last entered container has been read
	bad   int  // the complement of the offset of the syntax error, 0 if there is none
	stack Nesting
	name  []byte // buffer for unescaped names
}

// NewMembers returns a reader of doc, which must not change while it is in use: results alias it.
func NewMembers(doc []byte) *Members {
	return &Members{b: doc, i: SkipSpace(doc, 0)}
}

// Enter enters the current value if it begins with c, '{' or '['; else it does nothing and returns
// false.
func (m *Members) Enter(c byte) bool {
	if m.bad != 0 || m.i >= len(m.b) || m.b[m.i] != c {
		return false
	}
	m.i++
	m.first = true
	return true
}

// Next advances to the next member of the last entered object, and returns its name, unescaped and
// valid until the next call. At the end of the object it leaves the object and returns false.
func (m *Members) Next() (name []byte, ok bool) {
	if !m.more('}') {
		return nil, false
	}
	start := m.i
	if start >= len(m.b) || m.b[start] != '"' {
		return nil, m.fail(^start)
	}
	end := SkipString(m.b, start+1)
	if end < 0 {
		return nil, m.fail(end)
	}
	i := SkipColon(m.b, end)
	if i < 0 {
		return nil, m.fail(i)
	}
	m.i = i
	name = m.b[start+1 : end-1]
	if Escaped(name) {
		m.name = AppendUnescaped(m.name[:0], name)
		name = m.name
	}
	return name, true
}

// NextElement advances to the next element of the last entered array. At the end of the array it
// leaves the array and returns false.
func (m *Members) NextElement() bool { return m.more(']') }

func (m *Members) more(closing byte) bool {
	if m.bad != 0 {
		return false
	}
	i := SkipSpace(m.b, m.i)
	switch {
	case i >= len(m.b):
		return m.fail(^i)
	case m.b[i] == closing:
		m.i, m.first = i+1, false
		return false
	case m.first:
		m.first = false
	case m.b[i] != ',':
		return m.fail(^i)
	default:
		i = SkipSpace(m.b, i+1)
	}
	m.i = i
	return true
}

// Value returns the current value as it is in the document, nil after an error.
func (m *Members) Value() []byte {
	if m.bad != 0 {
		return nil
	}
	end := m.stack.Skip(m.b, m.i, 0)
	if end < 0 {
		m.fail(end)
		return nil
	}
	v := m.b[m.i:end:end]
	m.i = end
	return v
}

// End returns the first error, or an error if something other than white space follows the value.
func (m *Members) End() error {
	if m.bad == 0 {
		if i := SkipSpace(m.b, m.i); i < len(m.b) {
			m.fail(^i)
		}
	}
	if m.bad != 0 {
		return ErrorAt(m.b, m.bad)
	}
	return nil
}

func (m *Members) fail(bad int) bool {
	m.bad = bad
	return false
}

// Text returns the text of a JSON string that has been checked, and false if value is not a string.
func Text(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	inside := value[1 : len(value)-1]
	if Escaped(inside) {
		inside = AppendUnescaped(nil, inside)
	}
	return string(inside), true
}
