package object

import (
	"encoding/binary"
	"math/bits"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// Form returns a hash of the content of a JSON document, which must be valid. It depends neither on
// the order of the members of objects, nor on white space and escapes. Numbers count as they are
// written. Checkpoints have a fingerprint of such hashes: a later release must not change them.
//
// It is in the path of each change, so it reads the document once, eight bytes at a time, and
// allocates nothing. It is no defense: who writes an object can find two contents with one hash.
func Form(doc []byte) uint64 {
	scratch := packers.Get().(*[]byte)
	f := former{c: cursor{b: doc, i: jsonscan.SkipSpace(doc, 0), scratch: *scratch}}
	form := f.value()
	*scratch = f.c.scratch
	if cap(*scratch) <= bufferGiant {
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
	formOfScalar = 0x27d4eb2f165667c5
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
		return f.text()
	}
	start := c.i
	if !c.at(jsonscan.SkipScalar(c.b, start)) {
		return 0
	}
	return hashText(formOfScalar, c.b[start:c.i])
}

// object adds the hashes of its members: a sum has no order.
func (f *former) object() uint64 {
	sum := uint64(formOfObject)
	for more := f.c.first('}'); more; more = f.c.next('}') {
		c := &f.c
		if c.i >= len(c.b) || c.b[c.i] != '"' {
			c.at(^c.i)
			return 0
		}
		name := f.text()
		if c.bad != 0 || !c.at(jsonscan.SkipColon(c.b, c.i)) {
			return 0
		}
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

// text returns the hash of the string at the cursor, which it passes. It is hashText of its text.
func (f *former) text() uint64 {
	c := &f.c
	h := uint64(formOfText)
	for i := c.i + 1; i+8 <= len(c.b); i += 8 {
		word := binary.LittleEndian.Uint64(c.b[i:])
		stops := jsonscan.StringStops(word)
		if stops == 0 {
			h = hashWord(h, word)
			continue
		}
		n := bits.TrailingZeros64(stops) >> 3
		if c.b[i+n] != '"' {
			break
		}
		c.i = i + n + 1
		return hashTail(h, word&(1<<(8*n)-1), n)
	}
	start := c.i + 1
	if !c.at(jsonscan.SkipString(c.b, start)) {
		return 0
	}
	return hashText(formOfText, c.plain(c.b[start:c.i-1]))
}

// plain returns the text of the inside of a string, valid until the next call of plain or text.
func (c *cursor) plain(inside []byte) []byte {
	if !jsonscan.Escaped(inside) {
		return inside
	}
	c.scratch = jsonscan.AppendUnescaped(c.scratch[:0], inside)
	return c.scratch
}

// hashText returns a hash of text. h stands for its type.
func hashText(h uint64, text []byte) uint64 {
	for ; len(text) >= 8; text = text[8:] {
		h = hashWord(h, binary.LittleEndian.Uint64(text))
	}
	tail := uint64(0)
	for i, c := range text {
		tail |= uint64(c) << (8 * i)
	}
	return hashTail(h, tail, len(text))
}

func hashWord(h, word uint64) uint64 {
	h = (h ^ word) * 0x9fb21c651e98df25
	return h ^ h>>32
}

// hashTail completes a hash with the last n bytes of a text; n is less than 8.
func hashTail(h, tail uint64, n int) uint64 { return hashWord(h, tail|uint64(n)<<56) }

// mixed is the finalizer of splitmix64: a difference in one bit changes half of all bits.
func mixed(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
