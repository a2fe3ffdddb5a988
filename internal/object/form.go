package object

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Form returns a hash of the content of a JSON document, which must be valid. It depends neither on
// the order of the members of objects, nor on white space and escapes. Numbers count as they are
// written. Checkpoints store what is made of it: another result is another content to them.
//
// The hash is no defense: who writes an object can find two contents with one hash.
func Form(doc []byte) uint64 {
	scratch := packers.Get().(*[]byte)
	f := former{c: cursor{b: doc, i: skipSpace(doc, 0), scratch: *scratch}}
	form := f.value()
	if *scratch = f.c.scratch; cap(*scratch) <= bufferGiant {
		packers.Put(scratch)
	}
	return form
}

// former traverses a document. After a syntax error, its results mean nothing.
type former struct{ c cursor }

// These keep values of different types apart.
const (
	formOfObject = 0x9e3779b97f4a7c15
	formOfArray  = 0xc2b2ae3d27d4eb4f
	formOfText   = 0x165667b19e3779f9
)

func (f *former) value() uint64 {
	c := &f.c
	if c.i >= len(c.b) {
		c.at(^c.i)
		return 0
	}
	switch c.b[c.i] {
	case '{':
		return f.object()
	case '[':
		return f.array()
	case '"':
		start := c.i + 1
		if !c.at(skipString(c.b, start)) {
			return 0
		}
		return xxhash.Sum64(c.plain(c.b[start:c.i-1])) ^ formOfText
	}
	start := c.i
	if !c.at(skipScalar(c.b, start)) {
		return 0
	}
	return xxhash.Sum64(c.b[start:c.i])
}

// object adds the hashes of its members: a sum has no order.
func (f *former) object() uint64 {
	sum := uint64(formOfObject)
	for more := f.c.first('}'); more && f.c.member(); more = f.c.next('}') {
		name := xxhash.Sum64(f.c.text())
		sum += mixed(name ^ bits.RotateLeft64(f.value(), 32))
	}
	return mixed(sum)
}

func (f *former) array() uint64 {
	all := uint64(formOfArray)
	for more := f.c.first(']'); more && f.c.bad == 0; more = f.c.next(']') {
		all = mixed(all ^ f.value())
	}
	return mixed(all + formOfArray)
}

// plain returns the text of the inside of a string, valid until the next call of plain or text.
func (c *cursor) plain(inside []byte) []byte {
	if !escaped(inside) {
		return inside
	}
	c.scratch = AppendUnescaped(c.scratch[:0], inside)
	return c.scratch
}

// mixed is the finalizer of splitmix64: a difference in one bit changes half of all bits.
func mixed(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
