package answer

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
)

// fieldChange is what the values of a path are before and after a version.
type fieldChange struct {
	// before and after are the objects without anything but the values that differ and what these
	// are in; nil if the object is nil.
	before, after json.RawMessage
	isThere       bool // one of the objects has a value at the path
	isChange      bool // the values differ
}

// compare returns the values of the path in the object before a version and in that after it.
//
// An element of a list that is named by its label, or found by [*], is the same one wherever it
// stands. So other elements may come, go, or change their names without a change of its values.
func (p Path) compare(before, after json.RawMessage) fieldChange {
	was, is := p.find(before), p.find(after)
	c := fieldChange{isThere: len(was.values)+len(is.values) > 0, isChange: !maps.Equal(was.values, is.values)}
	if !c.isChange {
		return c
	}
	shown := map[string]bool{} // the values that differ, and what they are in
	for _, f := range []*found{was, is} {
		for at := range f.values {
			before, wasThere := was.values[at]
			after, isThere := is.values[at]
			if wasThere == isThere && before == after {
				continue
			}
			for _, prefix := range prefixes(at) {
				shown[prefix] = true
			}
		}
	}
	c.before, c.after = was.reduce(shown, is.labels), is.reduce(shown, was.labels)
	return c
}

// found are the values of a path in an object.
type found struct {
	object any               // nil: there is none
	values map[string]string // as JSON, by the place at which they are
	// labels has the label of each element that an index has selected, by its place. It says
	// whether the element at an index is another one than before.
	labels map[string]string
	lists  map[string]string // the member that is the label of the elements, by the place of the list
}

// separator ends each step of a place, and is in no key.
const separator = "\x00"

// prefixes returns the places that lead to a place, and the place itself.
func prefixes(at string) []string {
	out := []string{""}
	for i := range len(at) {
		if at[i] == separator[0] {
			out = append(out, at[:i+1])
		}
	}
	return out
}

// find returns the values of the path in an object.
func (p Path) find(object json.RawMessage) *found {
	f := &found{values: map[string]string{}, labels: map[string]string{}, lists: map[string]string{}}
	d := json.NewDecoder(strings.NewReader(string(object)))
	d.UseNumber()
	if len(object) == 0 || d.Decode(&f.object) != nil {
		f.object = nil
		return f
	}
	f.collect(p, f.object, "")
	return f
}

// collect adds the values of a path in value, which is at a place.
func (f *found) collect(p Path, value any, at string) {
	if len(p) == 0 {
		raw, err := json.Marshal(value)
		if err == nil { // always: it came from JSON
			f.values[at] = string(raw)
		}
		return
	}
	switch value := value.(type) {
	case map[string]any:
		below, ok := value[p[0].key]
		if ok && p[0].form != every && p[0].by == "" {
			f.collect(p[1:], below, at+p[0].key+separator)
		}
	case []any:
		f.collectElements(p, value, at)
	}
}

// collectElements adds the values of a path in the elements that its first step selects.
func (f *found) collectElements(p Path, list []any, at string) {
	switch p[0].form {
	case member:
	case pointed:
		f.collectAt(p, list, at)
	case every:
		by := labelKey(list)
		f.lists[at] = by
		for k, e := range list {
			f.collect(p[1:], e, at+elementPlace(by, e, k))
		}
	case element:
		if p[0].by == "" && f.collectAt(p, list, at) {
			return
		}
		keys := []string{p[0].by}
		if p[0].by == "" {
			keys = kinds.MergeKeys()
		}
		for _, by := range keys {
			for k, e := range list {
				if label, ok := labelOf(e, by); ok && label == p[0].key {
					f.lists[at] = by
					f.collect(p[1:], e, at+elementPlace(by, e, k))
					return
				}
			}
		}
	}
}

// collectAt adds the values in the element at the index that the first step names. It returns false
// if there is none.
func (f *found) collectAt(p Path, list []any, at string) bool {
	k, err := strconv.Atoi(p[0].key)
	if err != nil || k < 0 || k >= len(list) {
		return false
	}
	place := at + elementPlace("", nil, k)
	if by := labelKey(list); by != "" {
		label, _ := labelOf(list[k], by)
		f.labels[place] = by + "=" + label
	}
	f.collect(p[1:], list[k], place)
	return true
}

// elementPlace returns the step to an element: by its label, or else by its index.
func elementPlace(by string, e any, k int) string {
	if label, ok := labelOf(e, by); ok {
		return "[" + by + "=" + label + "]" + separator
	}
	return "[" + strconv.Itoa(k) + "]" + separator
}

// labelKey returns the member that distinguishes the elements of a list, as package console shows
// them; "": none does.
func labelKey(list []any) string {
	for _, by := range kinds.MergeKeys() {
		seen := map[string]bool{}
		for _, e := range list {
			if label, ok := labelOf(e, by); ok {
				seen[label] = true
			}
		}
		if len(list) > 0 && len(seen) == len(list) {
			return by
		}
	}
	return ""
}

// labelOf returns the text of a scalar member of an element.
func labelOf(e any, by string) (string, bool) {
	m, _ := e.(map[string]any)
	switch value := m[by].(type) {
	case string:
		return value, true
	case json.Number:
		return value.String(), true
	}
	return "", false
}

// reduce returns the object without anything but what is at the shown places, nil if there is no
// object. others are the labels of the other object's elements.
func (f *found) reduce(shown map[string]bool, others map[string]string) json.RawMessage {
	if f.object == nil {
		return nil
	}
	raw, err := json.Marshal(f.reduced(f.object, "", shown, others))
	if err != nil {
		return nil // impossible: the value came from JSON
	}
	return raw
}

func (f *found) reduced(value any, at string, shown map[string]bool, others map[string]string) any {
	if _, isValue := f.values[at]; isValue {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, below := range value {
			if place := at + key + separator; shown[place] {
				out[key] = f.reduced(below, place, shown, others)
			}
		}
		return out
	case []any:
		return f.reducedList(value, at, shown, others)
	}
	return value
}

// reducedList returns a list with the shown elements. One that has no label keeps its index: null
// stands for those before it.
func (f *found) reducedList(list []any, at string, shown map[string]bool, others map[string]string) []any {
	out := []any{}
	for k, e := range list {
		by := f.lists[at]
		place := at + elementPlace(by, e, k)
		if !shown[place] {
			by, place = "", at+elementPlace("", nil, k)
		}
		if !shown[place] {
			continue
		}
		reduced := f.reduced(e, place, shown, others)
		if by == "" {
			label, other := f.labels[place], others[place]
			if label != "" && (other == "" || other == label) {
				by, _, _ = strings.Cut(label, "=")
			}
		}
		m, isObject := reduced.(map[string]any)
		switch {
		case by != "" && isObject:
			m = maps.Clone(m)
			m[by] = e.(map[string]any)[by]
			out = append(out, m)
		default:
			out = append(out, slices.Repeat([]any{nil}, max(0, k-len(out)))...)
			out = append(out, reduced)
		}
	}
	return out
}
