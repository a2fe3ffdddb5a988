package patch

import (
	"bytes"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// member is one member of an object.
type member struct {
	key   []byte // unescaped
	raw   []byte // as written between the quotes
	value []byte
	at    int32 // of places, if it was read from there
}

// linearMax is the number of members up to which a linear search is used.
const linearMax = 16

// index compares the object or array that begins at m with an index of both documents. It does not
// return to lockstep inside.
func (d *Differ) index(m mark) error {
	// alike looks one level deeper than the comparison.
	levels := maxDepth - len(d.path) + 1
	i, err := d.placesA.read(d.a, m.i, levels)
	if err != nil {
		return err
	}
	j, err := d.placesB.read(d.b, m.j, levels)
	if err != nil {
		return err
	}
	d.visited += i - m.i + j - m.j
	d.again += i - m.i + j - m.j
	if err := d.bounded(); err != nil {
		return err
	}
	if err := d.compare(0, 0, unknown); err != nil {
		return err
	}
	if i != d.i || j != d.j {
		d.resync(i, j)
	}
	return nil
}

// unknown is the length of a common beginning that is not known.
const unknown = -1

// compare adds the operations that turn the value at placesA.all[x] into the one at placesB.all[y].
// same is the length of their common beginning: if the comparison of the values around them has
// found it, these bytes are not compared again.
func (d *Differ) compare(x, y int32, same int) error {
	va, vb := d.placesA.bytes(x), d.placesB.bytes(y)
	if same == unknown {
		same = d.common(va, vb)
	}
	if same == len(va) && same == len(vb) {
		return nil
	}
	if va[0] != vb[0] || va[0] != '{' && va[0] != '[' || len(d.path) >= maxDepth {
		d.scalar(va, vb)
		return nil
	}
	if err := d.bounded(); err != nil {
		return err
	}
	w, depth := d.written(), len(d.path)
	d.path = append(d.path, segment{})
	var err error
	if va[0] == '{' {
		err = d.compareObjects(x, y, same)
	} else {
		err = d.compareArrays(x, y, same)
	}
	d.path = d.path[:depth]
	d.bound(w, vb)
	return err
}

// within returns the length of the common beginning of two values inside the values x and y, whose
// own is same.
func (d *Differ) within(x, y int32, same int, insideX, insideY int32) int {
	a, b := &d.placesA.all[insideX], &d.placesB.all[insideY]
	i, j := a.start-d.placesA.all[x].start, b.start-d.placesB.all[y].start
	if i != j || int(i) > same {
		return unknown
	}
	return min(same-int(i), int(a.end-a.start), int(b.end-b.start))
}

func (d *Differ) compareObjects(x, y int32, same int) error {
	var bufA, bufB [linearMax]member
	as := lastOfEach(d.placesA.appendMembers(bufA[:0], x))
	bs := lastOfEach(d.placesB.appendMembers(bufB[:0], y))

	w, vb := d.written(), d.placesB.bytes(y)
	var index memberIndex
	kept := make([]bool, 0, 2*linearMax) // of bs: has a partner in as
	kept = append(kept, make([]bool, len(bs))...)
	hint := 0
	for k := range as {
		n := hint
		if n >= len(bs) || !bytes.Equal(bs[n].key, as[k].key) {
			n = index.find(bs, as[k].key)
		}
		d.at(segment{key: as[k].raw})
		if n < 0 {
			d.emit(opRemove, nil)
			continue
		}
		kept[n] = true
		hint = n + 1
		if err := d.compare(as[k].at, bs[n].at, d.within(x, y, same, as[k].at, bs[n].at)); err != nil {
			return err
		}
		if d.exceeds(w, vb) {
			return nil
		}
	}
	for n := range bs {
		if !kept[n] {
			d.at(segment{key: bs[n].raw})
			d.emit(opAdd, d.placesB.bytes(bs[n].at))
		}
	}
	return nil
}

// compareArrays first skips the equal elements at both ends. If the lengths differ, it then pairs
// the elements at both ends that are versions of each other. The patch for an inserted container
// thus contains only the new one. All other elements are paired in order.
func (d *Differ) compareArrays(x, y int32, same int) error {
	outer := d.pairs
	p := pairing{d: d, heads: outer.heads[len(outer.heads):], tails: outer.tails[len(outer.tails):]}
	d.pairs.elements = d.placesA.appendInside(d.pairs.elements, x)
	p.as = d.pairs.elements[len(outer.elements):]
	d.pairs.elements = d.placesB.appendInside(d.pairs.elements, y)
	p.bs = d.pairs.elements[len(outer.elements)+len(p.as):]

	base := p.skipEqual(x, y, same)
	tail := 0
	if len(p.as) != len(p.bs) {
		tail = p.alikeTail(p.alikeHead())
	}
	d.pairs.heads, d.pairs.tails = append(outer.heads, p.heads...), append(outer.tails, p.tails...)
	err := p.compare(base, tail, d.placesB.bytes(y))
	d.pairs.truncate(&outer)
	return err
}

// pairing pairs the elements of two arrays. It keeps the lengths of the common beginnings that it
// finds, so that the comparison of a pair does not read these bytes once more.
type pairing struct {
	d      *Differ
	as, bs []int32
	heads  []int // of the pairs from the beginning, as far as known
	tails  []int // of the pairs from the end, as far as known
}

// pairings is the memory of the pairings of the current arrays, innermost last.
type pairings struct {
	elements     []int32
	heads, tails []int
}

func (p *pairings) truncate(outer *pairings) {
	p.elements = p.elements[:len(outer.elements)]
	p.heads = p.heads[:len(outer.heads)]
	p.tails = p.tails[:len(outer.tails)]
}

// compare adds the operations that turn the elements as into bs, the elements of the array vb from
// base on. The last elements of both, as many as tail, are paired from the end.
func (p *pairing) compare(base, tail int, vb []byte) error {
	d := p.d
	as, bs := p.as, p.bs
	w := d.written()
	pairs := min(len(as), len(bs)) - tail
	for k := range pairs {
		d.at(segment{index: base + k})
		if err := d.compare(as[k], bs[k], p.inOrder(k)); err != nil {
			return err
		}
		if d.exceeds(w, vb) {
			return nil
		}
	}
	// Removals run from the last element to the first, so that each index is the element's index in
	// before.
	for k := len(as) - tail - 1; k >= pairs && !d.exceeds(w, vb); k-- {
		d.at(segment{index: base + k})
		d.emit(opRemove, nil)
	}
	for k := pairs; k < len(bs)-tail; k++ {
		d.at(segment{index: base + k})
		d.emit(opAdd, d.placesB.bytes(bs[k]))
	}
	// The remaining elements now have their indexes of after.
	for n := tail - 1; n >= 0; n-- {
		d.at(segment{index: base + len(bs) - 1 - n})
		if err := d.compare(as[len(as)-1-n], bs[len(bs)-1-n], p.fromEnd(n)); err != nil {
			return err
		}
	}
	return nil
}

// inOrder returns the length of the common beginning of the elements k, if it is known.
func (p *pairing) inOrder(k int) int {
	if k < len(p.heads) {
		return p.heads[k]
	}
	if n := len(p.as) - 1 - k; len(p.as) == len(p.bs) && n < len(p.tails) {
		return p.tails[n]
	}
	return unknown
}

// fromEnd returns the length of the common beginning of the n-th elements from the end, if it is
// known.
func (p *pairing) fromEnd(n int) int {
	if n < len(p.tails) {
		return p.tails[n]
	}
	return unknown
}

// common returns the length of the common beginning of two elements, and whether they are equal.
func (p *pairing) common(a, b int32, same int) (int, bool) {
	va, vb := p.d.placesA.bytes(a), p.d.placesB.bytes(b)
	if same == unknown {
		same = p.d.common(va, vb)
	}
	return same, same == len(va) && same == len(vb)
}

// skipEqual removes the equal elements at both ends, and returns the number of those at the
// beginning. The arrays are x and y; the length of their common beginning is same.
func (p *pairing) skipEqual(x, y int32, same int) (base int) {
	for base < len(p.as) && base < len(p.bs) {
		a, b := p.as[base], p.bs[base]
		n, equal := p.common(a, b, p.d.within(x, y, same, a, b))
		if !equal {
			p.heads = append(p.heads, n)
			break
		}
		base++
	}
	p.as, p.bs = p.as[base:], p.bs[base:]
	for len(p.as) > 0 && len(p.bs) > 0 {
		i, j := len(p.as)-1, len(p.bs)-1
		if i == 0 && j == 0 {
			break // not equal: see above
		}
		n, equal := p.common(p.as[i], p.bs[j], unknown)
		if !equal {
			p.tails = append(p.tails, n)
			break
		}
		p.as, p.bs = p.as[:i], p.bs[:j]
	}
	return base
}

// alikeHead returns the number of pairs from the beginning that are versions of each other.
func (p *pairing) alikeHead() (head int) {
	pairs := min(len(p.as), len(p.bs))
	for head < pairs {
		if head == len(p.heads) {
			n, _ := p.common(p.as[head], p.bs[head], unknown)
			p.heads = append(p.heads, n)
		}
		if !p.alike(p.as[head], p.bs[head], p.heads[head]) {
			break
		}
		head++
	}
	return head
}

// alikeTail returns the number of pairs from the end that are versions of each other, without the
// elements of the head.
func (p *pairing) alikeTail(head int) (tail int) {
	pairs := min(len(p.as), len(p.bs))
	for tail < pairs-head {
		a, b := p.as[len(p.as)-1-tail], p.bs[len(p.bs)-1-tail]
		if tail == len(p.tails) {
			n, _ := p.common(a, b, unknown)
			p.tails = append(p.tails, n)
		}
		if !p.alike(a, b, p.tails[tail]) {
			break
		}
		tail++
	}
	return tail
}

// alike reports whether two elements seem to be versions of each other: objects with the same first
// member, which in Kubernetes' lists is nearly always the key of the list (name, type, key). same
// is the length of their common beginning.
func (p *pairing) alike(a, b int32, same int) bool {
	places, vb := &p.d.placesA, p.d.placesB.bytes(b)
	if places.all[a].next == a+1 || places.doc[places.all[a].start] != '{' {
		return false
	}
	element, first := &places.all[a], &places.all[a+1]
	if first.key != element.start+2 || first.start != first.keyEnd+2 { // white space
		return false
	}
	i := int(first.end - element.start)
	return same >= i && i < len(vb) && (vb[i] == ',' || vb[i] == '}')
}

// memberIndex finds members by key. It creates the map only if necessary: members nearly always
// have the same order.
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

// appendMembers appends the members of an object, starting with the one at doc[i]. end is the index
// of the closing bracket.
func appendMembers(ms []member, doc []byte, i int) (_ []member, end int, err error) {
	for first := true; ; first = false {
		i = jsonscan.SkipSpace(doc, i)
		if i < len(doc) && doc[i] == '}' {
			return ms, i, nil
		}
		if !first {
			if i >= len(doc) || doc[i] != ',' {
				return ms, 0, errSyntax
			}
			i = jsonscan.SkipSpace(doc, i+1)
		}
		if i >= len(doc) || doc[i] != '"' {
			return ms, 0, errSyntax
		}
		end = jsonscan.StringEnd(doc, i)
		if end < 0 {
			return ms, 0, jsonscan.ErrorAt(doc, end)
		}
		raw := doc[i+1 : end-1]
		i = jsonscan.SkipSpace(doc, end)
		if i >= len(doc) || doc[i] != ':' {
			return ms, 0, errSyntax
		}
		i = jsonscan.SkipSpace(doc, i+1)
		end = jsonscan.ValueEnd(doc, i)
		if end < 0 {
			return ms, 0, jsonscan.ErrorAt(doc, end)
		}
		ms = append(ms, member{key: jsonscan.Unescape(raw), raw: raw, value: doc[i:end]})
		i = end
	}
}

// appendMembers appends the members of the object at all[n].
func (p *places) appendMembers(ms []member, n int32) []member {
	end := p.all[n].next
	for n++; n < end; n = p.all[n].next {
		raw := p.doc[p.all[n].key:p.all[n].keyEnd]
		ms = append(ms, member{key: jsonscan.Unescape(raw), raw: raw, at: n})
	}
	return ms
}
