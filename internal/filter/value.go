package filter

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// errJSON means that JSON is damaged. Objects are checked when they are received.
var errJSON = errors.New("damaged object")

// valueOf returns a JSON value as a CEL value. Objects and arrays are decoded level by level, on
// access. It keeps raw.
func valueOf(raw []byte) ref.Val { return valueIn(raw, 0) }

// valueIn is valueOf for a value inside that many objects and arrays.
func valueIn(raw []byte, levels int) ref.Val {
	if len(raw) == 0 {
		return types.WrapErr(errJSON)
	}
	switch raw[0] {
	case '{':
		return &mapping{raw: raw, levels: levels}
	case '[':
		return &listing{raw: raw, levels: levels}
	case '"':
		s, _ := jsonscan.Text(raw)
		return types.String(s)
	case 't':
		return types.True
	case 'f':
		return types.False
	case 'n':
		return types.NullValue
	}
	return numberOf(raw)
}

// numberOf returns a number: an int if it is written as one and fits, else a double. CEL compares
// the two by value.
func numberOf(raw []byte) ref.Val {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return types.Int(n)
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	if err != nil && !math.IsInf(x, 0) {
		return types.WrapErr(errJSON)
	}
	return types.Double(x)
}

// mapping is a JSON object: a map of strings. It implements traits.Mapper, and belongs to one
// goroutine.
type mapping struct {
	raw    []byte
	levels int // around it
	opened bool
	fields []field
	index  map[string]int // nil if there are few fields
}

type field struct {
	name  string
	raw   []byte
	value ref.Val // nil: not yet decoded
}

// many is the number of fields from which on an index is faster than a linear search.
const many = 16

func (m *mapping) open() {
	if m.opened {
		return
	}
	m.opened = true
	doc := jsonscan.NewMembers(m.raw)
	if !doc.Enter('{') {
		return
	}
	for name, ok := doc.Next(); ok; name, ok = doc.Next() {
		at := m.at(string(name))
		if at < 0 { // the last of duplicates counts
			at = len(m.fields)
			m.fields = append(m.fields, field{name: string(name)})
			if m.index != nil {
				m.index[string(name)] = at
			} else if at == many {
				m.index = make(map[string]int, 2*many)
				for i := range m.fields {
					m.index[m.fields[i].name] = i
				}
			}
		}
		m.fields[at].raw = doc.Value()
	}
}

func (m *mapping) at(name string) int {
	if m.index != nil {
		if at, ok := m.index[name]; ok {
			return at
		}
		return -1
	}
	for i := range m.fields {
		if m.fields[i].name == name {
			return i
		}
	}
	return -1
}

func (m *mapping) valueAt(i int) ref.Val {
	f := &m.fields[i]
	if f.value == nil {
		f.value = valueIn(f.raw, m.levels+1)
	}
	return f.value
}

// Find implements traits.Mapper.
func (m *mapping) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false // there are no other keys
	}
	m.open()
	at := m.at(string(name))
	if at < 0 {
		return nil, false
	}
	return m.valueAt(at), true
}

// Get implements traits.Indexer.
func (m *mapping) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (m *mapping) Contains(key ref.Val) ref.Val {
	_, ok := m.Find(key)
	return types.Bool(ok)
}

// Size implements traits.Sizer.
func (m *mapping) Size() ref.Val {
	m.open()
	return types.Int(len(m.fields))
}

// Iterator implements traits.Iterable, over the names.
func (m *mapping) Iterator() traits.Iterator {
	m.open()
	names := make([]string, len(m.fields))
	for i := range m.fields {
		names[i] = m.fields[i].name
	}
	return types.NewStringList(types.DefaultTypeAdapter, names).Iterator()
}

// Equal implements ref.Val.
func (m *mapping) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*mapping); ok {
		switch {
		case bytes.Equal(m.raw, o.raw):
			return types.True
		case m.levels >= maxLevels:
			return types.Bool(sameTrees(m.raw, o.raw))
		}
	}
	o, ok := other.(traits.Mapper)
	if !ok || m.Size().Equal(o.Size()) != types.True {
		return types.False
	}
	for i := range m.fields {
		v, found := o.Find(types.String(m.fields[i].name))
		if !found || types.Equal(m.valueAt(i), v) != types.True {
			return types.False
		}
	}
	return types.True
}

// Type implements ref.Val.
func (*mapping) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *mapping) Value() any { return m.toLibrary().Value() }

// ConvertToType implements ref.Val.
func (m *mapping) ConvertToType(t ref.Type) ref.Val { return m.toLibrary().ConvertToType(t) }

// ConvertToNative implements ref.Val.
func (m *mapping) ConvertToNative(t reflect.Type) (any, error) {
	return m.toLibrary().ConvertToNative(t)
}

// toLibrary returns the map as a type of CEL's library.
func (m *mapping) toLibrary() traits.Mapper {
	m.open()
	all := make(map[ref.Val]ref.Val, len(m.fields))
	for i := range m.fields {
		all[types.String(m.fields[i].name)] = m.valueAt(i)
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, all)
}

// listing is a JSON array. It implements traits.Lister, and belongs to one goroutine.
type listing struct {
	raw      []byte
	levels   int // around it
	opened   bool
	elements []field // without names
}

func (l *listing) open() {
	if l.opened {
		return
	}
	l.opened = true
	doc := jsonscan.NewMembers(l.raw)
	if !doc.Enter('[') {
		return
	}
	for doc.NextElement() {
		l.elements = append(l.elements, field{raw: doc.Value()})
	}
}

func (l *listing) valueAt(i int) ref.Val {
	e := &l.elements[i]
	if e.value == nil {
		e.value = valueIn(e.raw, l.levels+1)
	}
	return e.value
}

func (l *listing) values() []ref.Val {
	l.open()
	out := make([]ref.Val, len(l.elements))
	for i := range l.elements {
		out[i] = l.valueAt(i)
	}
	return out
}

// Get implements traits.Indexer.
func (l *listing) Get(index ref.Val) ref.Val {
	i, err := types.GetOrError(index)
	if err != nil {
		return types.ValOrErr(index, "%v", err)
	}
	l.open()
	if i < 0 || i >= len(l.elements) {
		return types.NewErr("index out of bounds: %d", i)
	}
	return l.valueAt(i)
}

// Contains implements traits.Container.
func (l *listing) Contains(value ref.Val) ref.Val {
	if types.IsUnknownOrError(value) {
		return types.ValOrErr(value, "no such overload")
	}
	l.open()
	for i := range l.elements {
		if types.Equal(value, l.valueAt(i)) == types.True {
			return types.True
		}
	}
	return types.False
}

// Size implements traits.Sizer.
func (l *listing) Size() ref.Val {
	l.open()
	return types.Int(len(l.elements))
}

// Iterator implements traits.Iterable.
func (l *listing) Iterator() traits.Iterator { return l.toLibrary().Iterator() }

// Add implements traits.Adder.
func (l *listing) Add(other ref.Val) ref.Val { return l.toLibrary().Add(other) }

// Equal implements ref.Val.
func (l *listing) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*listing); ok {
		switch {
		case bytes.Equal(l.raw, o.raw):
			return types.True
		case l.levels >= maxLevels:
			return types.Bool(sameTrees(l.raw, o.raw))
		}
	}
	o, ok := other.(traits.Lister)
	if !ok || l.Size().Equal(o.Size()) != types.True {
		return types.False
	}
	for i := range l.elements {
		if types.Equal(l.valueAt(i), o.Get(types.Int(i))) != types.True {
			return types.False
		}
	}
	return types.True
}

// Type implements ref.Val.
func (*listing) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (l *listing) Value() any { return l.toLibrary().Value() }

// ConvertToType implements ref.Val.
func (l *listing) ConvertToType(t ref.Type) ref.Val { return l.toLibrary().ConvertToType(t) }

// ConvertToNative implements ref.Val.
func (l *listing) ConvertToNative(t reflect.Type) (any, error) {
	return l.toLibrary().ConvertToNative(t)
}

func (l *listing) toLibrary() traits.Lister {
	return types.NewRefValList(types.DefaultTypeAdapter, l.values())
}

// String returns no content, so that object data is never printed.
func (*mapping) String() string { return "a map" }

// String returns no content, like that of mapping.
func (*listing) String() string { return "a list" }
