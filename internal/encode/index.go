package encode

import "bytes"

// member is one member of an object.
type member struct {
	key   []byte // unescaped
	raw   []byte // as written between the quotes
	value []byte
}

// linearMax is the number of members up to which a linear search is used.
const linearMax = 16

// compare writes the operations that turn the value va into vb, both without surrounding space.
func (d *differ) compare(va, vb []byte) error {
	if bytes.Equal(va, vb) {
		return nil
	}
	if va[0] != vb[0] || va[0] != '{' && va[0] != '[' || len(d.path) >= maxDepth {
		if !sameScalar(va, vb) {
			d.emit(opReplace, vb)
		}
		return nil
	}
	from := len(d.dst)
	depth := len(d.path)
	d.path = append(d.path, segment{})
	var err error
	if va[0] == '{' {
		err = d.compareObjects(va, vb)
	} else {
		err = d.compareArrays(va, vb)
	}
	d.path = d.path[:depth]
	d.bound(from, vb)
	return err
}

func (d *differ) compareObjects(va, vb []byte) error {
	var bufA, bufB [linearMax]member
	as, _, err := appendMembers(bufA[:0], va, 1)
	if err != nil {
		return err
	}
	bs, _, err := appendMembers(bufB[:0], vb, 1)
	if err != nil {
		return err
	}
	as, bs = lastOfEach(as), lastOfEach(bs)

	top := len(d.path) - 1
	var index memberIndex
	kept := make([]bool, 0, 2*linearMax) // of bs: has a partner in as
	kept = append(kept, make([]bool, len(bs))...)
	hint := 0
	for k := range as {
		n := hint
		if n >= len(bs) || !bytes.Equal(bs[n].key, as[k].key) {
			n = index.find(bs, as[k].key)
		}
		d.path[top].key = as[k].raw
		if n < 0 {
			d.emit(opRemove, nil)
			continue
		}
		kept[n] = true
		hint = n + 1
		if err := d.compare(as[k].value, bs[n].value); err != nil {
			return err
		}
	}
	for n := range bs {
		if !kept[n] {
			d.path[top].key = bs[n].raw
			d.emit(opAdd, bs[n].value)
		}
	}
	return nil
}

// compareArrays first skips the equal elements at both ends. If the lengths differ, it then pairs the elements at both ends
// that are versions of each other. The patch for an inserted container thus contains only the new one. All other elements
// are paired in order.
func (d *differ) compareArrays(va, vb []byte) error {
	var bufA, bufB [linearMax][]byte
	as, err := appendElements(bufA[:0], va)
	if err != nil {
		return err
	}
	bs, err := appendElements(bufB[:0], vb)
	if err != nil {
		return err
	}

	base, tail := 0, 0
	for base < len(as) && base < len(bs) && bytes.Equal(as[base], bs[base]) {
		base++
	}
	as, bs = as[base:], bs[base:]
	for len(as) > 0 && len(bs) > 0 && bytes.Equal(as[len(as)-1], bs[len(bs)-1]) {
		as, bs = as[:len(as)-1], bs[:len(bs)-1]
	}
	pairs := min(len(as), len(bs))
	if len(as) != len(bs) {
		head := 0
		for head < pairs && alike(as[head], bs[head]) {
			head++
		}
		for tail < pairs-head && alike(as[len(as)-1-tail], bs[len(bs)-1-tail]) {
			tail++
		}
	}

	top := len(d.path) - 1
	pairs -= tail
	for k := range pairs {
		d.path[top].index = base + k
		if err := d.compare(as[k], bs[k]); err != nil {
			return err
		}
	}
	// Removals run from the last element to the first, so that each index is the element's index in before.
	for k := len(as) - tail - 1; k >= pairs; k-- {
		d.path[top].index = base + k
		d.emit(opRemove, nil)
	}
	for k := pairs; k < len(bs)-tail; k++ {
		d.path[top].index = base + k
		d.emit(opAdd, bs[k])
	}
	// The remaining elements now have their indexes of after.
	for k := len(bs) - tail; k < len(bs); k++ {
		d.path[top].index = base + k
		if err := d.compare(as[k+len(as)-len(bs)], bs[k]); err != nil {
			return err
		}
	}
	return nil
}

// alike reports whether two elements seem to be versions of each other: objects with the same first member, which in
// Kubernetes' lists is nearly always the key of the list (name, type, key).
func alike(a, b []byte) bool {
	if a[0] != '{' || len(a) < 2 || a[1] != '"' {
		return false
	}
	i, err := skipString(a, 1)
	if err != nil || i >= len(a) || a[i] != ':' {
		return false
	}
	i, err = skipValue(a, i+1)
	return err == nil && i < len(a) && i < len(b) && bytes.Equal(a[:i], b[:i]) && (b[i] == ',' || b[i] == '}')
}

// memberIndex finds members by key. It creates the map only if necessary: members nearly always have the same order.
type memberIndex struct{ byKey map[string]int }

func (x *memberIndex) find(ms []member, key []byte) int {
	if len(ms) <= linearMax {
		for n := range ms {
			if bytes.Equal(ms[n].key, key) {
				return n
			}
		}
		return -1
	}
	if x.byKey == nil {
		x.byKey = make(map[string]int, len(ms))
		for n := range ms {
			x.byKey[string(ms[n].key)] = n
		}
	}
	if n, ok := x.byKey[string(key)]; ok {
		return n
	}
	return -1
}

// lastOfEach removes, in place, members that a later one with the same key overrides.
func lastOfEach(ms []member) []member {
	sorted := true
	for k := 1; k < len(ms) && sorted; k++ {
		sorted = bytes.Compare(ms[k-1].key, ms[k].key) < 0
	}
	if sorted {
		return ms
	}
	out := ms[:0]
	if len(ms) <= linearMax {
		for k := range ms {
			overridden := false
			for _, later := range ms[k+1:] {
				overridden = overridden || bytes.Equal(later.key, ms[k].key)
			}
			if !overridden {
				out = append(out, ms[k])
			}
		}
		return out
	}
	last := make(map[string]int, len(ms))
	for k := range ms {
		last[string(ms[k].key)] = k
	}
	for k := range ms {
		if last[string(ms[k].key)] == k {
			out = append(out, ms[k])
		}
	}
	return out
}

// appendMembers appends the members of an object, starting with the one at doc[i]. end is the index of the closing bracket.
func appendMembers(ms []member, doc []byte, i int) (_ []member, end int, err error) {
	for first := true; ; first = false {
		i = skipSpace(doc, i)
		if i < len(doc) && doc[i] == '}' {
			return ms, i, nil
		}
		if !first {
			if i >= len(doc) || doc[i] != ',' {
				return ms, 0, errSyntax
			}
			i = skipSpace(doc, i+1)
		}
		if i >= len(doc) || doc[i] != '"' {
			return ms, 0, errSyntax
		}
		end, err = skipString(doc, i)
		if err != nil {
			return ms, 0, err
		}
		raw := doc[i+1 : end-1]
		i = skipSpace(doc, end)
		if i >= len(doc) || doc[i] != ':' {
			return ms, 0, errSyntax
		}
		i = skipSpace(doc, i+1)
		if end, err = skipValue(doc, i); err != nil {
			return ms, 0, err
		}
		ms = append(ms, member{key: unescape(raw), raw: raw, value: doc[i:end]})
		i = end
	}
}

// appendElements appends the elements of an array.
func appendElements(vs [][]byte, doc []byte) ([][]byte, error) {
	for i, first := 1, true; ; first = false {
		i = skipSpace(doc, i)
		if i < len(doc) && doc[i] == ']' {
			return vs, nil
		}
		if !first {
			if i >= len(doc) || doc[i] != ',' {
				return vs, errSyntax
			}
			i = skipSpace(doc, i+1)
		}
		end, err := skipValue(doc, i)
		if err != nil {
			return vs, err
		}
		vs = append(vs, doc[i:end])
		i = end
	}
}
