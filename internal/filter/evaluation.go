package filter

import (
	"reflect"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/kubecdc/kubecdc/internal/object"
)

// keepBytes is the largest buffer that an evaluation keeps for the next object.
const keepBytes = 256 << 10

// evaluation is the evaluation of one delta, and caches its results. It belongs to one goroutine.
// It is CEL's Activation, and the value of the hidden variable that changed and changedOnly read.
type evaluation struct {
	d             *object.Delta
	before, after side
	labels        ref.Val
	answers       []answer // to changed and changedOnly, by the index of the question
	compared      bool     // the last question was evaluated, not cached
}

type answer byte

const (
	unasked answer = iota
	yes
	no
)

// side is the object before or after.
type side struct {
	object *object.Object // nil: it does not exist, or is not known
	raw    []byte
	opened bool
	value  ref.Val
	kept   []byte
}

func (s *side) begin(o *object.Object) { *s = side{object: o, kept: s.kept[:0]} }

func (s *side) end() {
	if cap(s.kept) > keepBytes {
		s.kept = nil
	}
	*s = side{kept: s.kept[:0]}
}

// json returns the object's JSON, nil if there is none. It is valid until the evaluation ends.
func (s *side) json() ([]byte, error) {
	if s.opened || s.object == nil {
		return s.raw, nil
	}
	raw, err := s.object.AppendJSON(s.kept[:0])
	if err != nil {
		return nil, errJSON // the original error may contain data of the object
	}
	s.raw = raw
	s.kept = raw
	s.opened = true
	return raw, nil
}

// val returns the object as a CEL value, null if there is none.
func (s *side) val() ref.Val {
	if s.value != nil {
		return s.value
	}
	raw, err := s.json()
	switch {
	case err != nil:
		s.value = types.WrapErr(err)
	case raw == nil:
		s.value = types.NullValue
	default:
		s.value = valueOf(raw)
	}
	return s.value
}

// begin starts the evaluation of d. It hides an object that the op of d does not have, even if the
// delta carries one.
func (e *evaluation) begin(d *object.Delta, x *expression) {
	before, after := d.Before, d.After
	switch d.Op {
	case object.Created, object.Read:
		before = nil
	case object.Deleted, object.Left:
		after = nil
	case object.Updated, object.Entered:
	}
	e.d = d
	e.before.begin(before)
	e.after.begin(after)
	e.labels = nil
	e.answers = e.answers[:0]
	if x != nil {
		for range x.questions {
			e.answers = append(e.answers, unasked)
		}
	}
}

// end releases the data of the delta.
func (e *evaluation) end() {
	e.d, e.labels = nil, nil
	e.before.end()
	e.after.end()
}

// bothJSON returns the JSON before and after, nil if it does not exist.
func (e *evaluation) bothJSON() (before, after []byte, err error) {
	before, err = e.before.json()
	if err != nil {
		return nil, nil, err
	}
	after, err = e.after.json()
	if err != nil {
		return nil, nil, err
	}
	return before, after, nil
}

// ResolveName implements cel.Activation.
func (e *evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case "op":
		return types.String(string(e.d.Op)), true
	case "before":
		return e.before.val(), true
	case "after":
		return e.after.val(), true
	case "resource":
		return types.String(e.d.Ref.Resource.String()), true
	case namespaceVariable:
		return types.String(e.d.Ref.Namespace()), true
	case "name":
		return types.String(e.d.Ref.Name()), true
	case "labels":
		if e.labels == nil {
			e.labels = e.labelsOf()
		}
		return e.labels, true
	case hidden:
		return e, true
	}
	return nil, false
}

// labelsOf returns the labels of the newest known object.
func (e *evaluation) labelsOf() ref.Val {
	newest := &e.after
	if newest.object == nil {
		newest = &e.before
	}
	v := newest.val()
	for _, name := range []string{"metadata", "labels"} {
		m, ok := v.(*mapping)
		if !ok {
			break
		}
		v, ok = m.Find(types.String(name))
		if !ok {
			break
		}
	}
	switch v.(type) {
	case *mapping, *types.Err:
		return v
	}
	return &mapping{opened: true} // no labels
}

// Parent implements cel.Activation.
func (*evaluation) Parent() cel.Activation { return nil }

// An evaluation implements ref.Val only so that it can be passed to a function.

// ConvertToNative implements ref.Val.
func (*evaluation) ConvertToNative(reflect.Type) (any, error) { return nil, errJSON }

// ConvertToType implements ref.Val.
func (*evaluation) ConvertToType(ref.Type) ref.Val { return types.NewErr("no such overload") }

// Equal implements ref.Val.
func (e *evaluation) Equal(other ref.Val) ref.Val { return types.Bool(ref.Val(e) == other) }

// Type implements ref.Val.
func (*evaluation) Type() ref.Type { return types.DynType }

// Value implements ref.Val.
func (e *evaluation) Value() any { return e }
