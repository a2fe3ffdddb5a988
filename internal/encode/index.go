package encode

import "bytes"

// member is one member of an object.
type member struct {
	key   []byte // unescaped
	raw   []byte // as written between the quotes
	value []byte
}

// few is up to how many members a key is looked for one by one.
const few = 16

// compare writes the operations that turn the value va into vb, both without space around them.
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
	var bufA, bufB [few]member
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
	kept := make([]bool, 0, 2*few) // of bs: has a partner in as
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

// compareArrays sets apart what is equal at both ends, then, where elements were put in or taken out, what is alike at both
// ends: the operations of a container that was put before another then name only the new one. The rest is paired in order.
func (d *differ) compareArrays(va, vb []byte) error {
	var bufA, bufB [few][]byte
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
	// Removed from the last to the first, so that each index is the one the element has in before.
	for k := len(as) - tail - 1; k >= pairs; k-- {
		d.path[top].index = base + k
		d.emit(opRemove, nil)
	}
	for k := pairs; k < len(bs)-tail; k++ {
		d.path[top].index = base + k
		d.emit(opAdd, bs[k])
	}
	// By now what is behind has the indexes that it has in after.
	for k := len(bs) - tail; k < len(bs); k++ {
		d.path[top].index = base + k
		if err := d.compare(as[k+len(as)-len(bs)], bs[k]); err != nil {
			return err
		}
	}
	return nil
}

// alike tells whether two elements seem to be versions of one: objects with the same first member, which in Kubernetes'
// lists is nearly always what tells their elements apart (name, type, key).
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

// memberIndex finds members by key. The map is made only when it is needed: members nearly always come in the same order.
type memberIndex struct{ byKey map[string]int }

func (x *memberIndex) find(ms []member, key []byte) int {
	if len(ms) <= few {
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

// lastOfEach drops, in place, members that a later one of the same key hides.
func lastOfEach(ms []member) []member {
	sorted := true
	for k := 1; k < len(ms) && sorted; k++ {
		sorted = bytes.Compare(ms[k-1].key, ms[k].key) < 0
	}
	if sorted {
		return ms
	}
	out := ms[:0]
	if len(ms) <= few {
		for k := range ms {
			hidden := false
			for _, later := range ms[k+1:] {
				hidden = hidden || bytes.Equal(later.key, ms[k].key)
			}
			if !hidden {
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

// appendMembers appends the members of an object, from the one at doc[i] on. end is the index of the bracket behind them.
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
