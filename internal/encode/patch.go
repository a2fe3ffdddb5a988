package encode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

const (
	// maxDepth is the depth to which AppendPatch descends. Deeper values are compared byte by byte and replaced as a whole.
	// This bounds the stack, and the work of the indexed comparison, which reads a document once per level.
	maxDepth = 100

	// patchSlack is how many bytes longer than a value the operations inside it may be before one replacement takes their
	// place. It is not 0: a few paths are more readable than a slightly shorter copy of a whole object.
	patchSlack = 512
)

// AppendPatch appends to dst the RFC 6902 patch that turns before into after, as a JSON array of add, remove and replace
// operations; [] if the documents are equal. The patch is at most 600 bytes longer than after.
//
// Strings are compared by meaning ("a" is "\u0061"), numbers by notation (1 is not 1.0): at worst this causes a redundant
// replacement. The last of duplicate keys counts, as in encoding/json.
//
// Both documents must be valid JSON in UTF-8. For other input the result is an error or a meaningless patch, never a panic.
// The documents may be in the array of dst, but only below its length.
func AppendPatch(dst, before, after []byte) ([]byte, error) {
	var d differ
	return d.append(dst, before, after)
}

// differ traverses two documents in lockstep. Versions of one object are mostly equal, so it mostly reads only one of them.
// A comparison of whole words finds that a[i:same] equals the bytes of b from j on; inside that part only the tokens of a
// are read. If the documents diverge inside a scalar, both scalars are skipped and the traversal continues after them. If
// they diverge between members or elements, the enclosing object or array is compared again with an index (index.go).
//
// It keeps its allocations for the next patch.
type differ struct {
	dst  []byte
	a, b []byte
	i, j int // the next byte of each
	same int // a[i:same] == b[j:j+same-i], and same is maximal
	// diverging has the starts, in a, of the nested objects and arrays that contain same, where the documents diverge.
	// Empty: not known.
	diverging []int
	open      []int // the memory of diverging

	path []segment
	keys []span // of the members read in the current objects, innermost last, in a
}

// segment is one step of a JSON pointer.
type segment struct {
	key   []byte // a member's key as written between the quotes; nil: an element
	index int
}

type span struct{ start, end int }

func (d *differ) append(dst, before, after []byte) ([]byte, error) {
	if d.path == nil { // enough for all but the largest objects
		d.path = make([]segment, 0, 32)
		d.keys = make([]span, 0, 128)
	}
	d.path, d.keys, d.diverging = d.path[:0], d.keys[:0], nil
	d.a, d.b = before, after
	d.dst = append(dst, '[')
	d.resync(0, 0)
	err := d.value()
	if err == nil {
		if d.next(); d.i < len(before) || d.j < len(after) {
			err = errTrailing
		}
	}
	out := append(d.dst, ']')
	// Release both documents. keys has no pointers, but is as long as the members of the widest objects.
	d.a, d.b, d.dst = nil, nil, nil
	clear(d.path[:cap(d.path)])
	if cap(d.keys) > maxKept/16 {
		d.keys = make([]span, 0, 128)
	}
	if err != nil {
		return dst, fmt.Errorf("patch: %w", err)
	}
	return out, nil
}

// mark is the state at the start of an object or array.
type mark struct{ i, j, dst, keys int }

func (d *differ) mark() mark { return mark{d.i, d.j, len(d.dst), len(d.keys)} }

// resync moves to i and j and finds how far the documents agree from there. Each byte is compared once: the next call
// happens only after the traversal has left the equal part.
func (d *differ) resync(i, j int) {
	d.i, d.j, d.diverging = i, j, nil
	a, b := d.a[i:], d.b[j:]
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	k := 0
	for ; k+8 <= n; k += 8 {
		if x := binary.LittleEndian.Uint64(a[k:]) ^ binary.LittleEndian.Uint64(b[k:]); x != 0 {
			d.same = i + k + bits.TrailingZeros64(x)/8
			return
		}
	}
	for k < n && a[k] == b[k] {
		k++
	}
	d.same = i + k
}

// next returns the first byte of the next token of each document, 0 at the end.
func (d *differ) next() (ca, cb byte) {
	if d.i < d.same {
		if c := d.a[d.i]; c > ' ' {
			return c, c
		}
	}
	i, j := skipSpace(d.a, d.i), skipSpace(d.b, d.j)
	if i-d.i == j-d.j && i <= d.same {
		d.i, d.j = i, j
	} else {
		d.resync(i, j)
	}
	if i < len(d.a) {
		ca = d.a[i]
	}
	if j < len(d.b) {
		cb = d.b[j]
	}
	return ca, cb
}

func (d *differ) value() error {
	ca, cb := d.next()
	if ca == cb && (ca == '{' || ca == '[') && len(d.path) < maxDepth {
		switch {
		case d.skipEqual():
			return nil
		case ca == '{':
			return d.object()
		}
		return d.array()
	}
	i, err := skipValue(d.a, d.i)
	if err != nil {
		return err
	}
	// Below same even the byte after the value is equal, so the value cannot be the beginning of a longer number.
	if i < d.same {
		d.j += i - d.i
		d.i = i
		return nil
	}
	j, err := skipValue(d.b, d.j)
	if err != nil {
		return err
	}
	if va, vb := d.a[d.i:i], d.b[d.j:j]; !sameScalar(va, vb) {
		d.emit(opReplace, vb)
	}
	d.resync(i, j)
	return nil
}

// skipEqual skips an object or array that ends before the documents diverge, and reports whether it did. Otherwise it
// records which objects and arrays inside contain the divergence, so that it reads each byte at most once. The outermost one
// is always traversed, which checks the syntax.
func (d *differ) skipEqual() bool {
	end := 0
	switch {
	case len(d.path) == 0:
	case len(d.diverging) == 0:
		end = d.diverge()
	case d.diverging[0] == d.i:
		d.diverging = d.diverging[1:]
	default:
		end, _ = skipValue(d.a[:d.same], d.i)
	}
	if end == 0 {
		return false
	}
	d.i, d.j = end, d.j+end-d.i
	return true
}

// diverge returns the index after the object or array that begins at a[i], 0 if it ends after the documents diverge.
func (d *differ) diverge() int {
	open, doc := d.open[:0], d.a[:d.same]
	for i := d.i; i < len(doc); {
		c := doc[i]
		if c == '"' {
			end, err := skipString(doc, i)
			if err != nil {
				break
			}
			if i = end; i < len(doc) && (doc[i] == ':' || doc[i] == ',') {
				i++
			}
			continue
		}
		switch c | ' ' { // the bracket and the brace differ only by this bit
		case '{':
			open = append(open, i)
		case '}':
			if open = open[:len(open)-1]; len(open) == 0 {
				return i + 1
			}
		}
		i++
	}
	if d.open = open; len(open) > 0 {
		d.diverging = open[1:]
	}
	return 0
}

func (d *differ) object() error {
	m := d.mark()
	d.path = append(d.path, segment{})
	top := len(d.path) - 1
	d.i++
	d.j++
	for first := true; ; first = false {
		ca, cb := d.next()
		switch {
		case ca == cb:
		case !first && ca == '}' && cb == ',':
			return d.rest(m, d.b, d.j, opAdd)
		case !first && ca == ',' && cb == '}':
			return d.rest(m, d.a, d.i, opRemove)
		default:
			return d.indexed(m)
		}
		if ca == '}' {
			break
		}
		if !first {
			if ca != ',' {
				return errSyntax
			}
			d.i++
			d.j++
			ca, cb = d.next()
		}
		if ca != '"' || cb != '"' {
			return errSyntax
		}
		end, err := skipString(d.a, d.i)
		if err != nil {
			return err
		}
		if end > d.same {
			return d.indexed(m)
		}
		d.path[top].key = d.a[d.i+1 : end-1]
		d.keys = append(d.keys, span{d.i + 1, end - 1})
		d.j += end - d.i
		d.i = end
		if d.i >= d.same || d.a[d.i] != ':' { // the colon may follow white space
			if ca, cb = d.next(); ca != ':' || cb != ':' {
				return errSyntax
			}
		}
		d.i++
		d.j++
		if err := d.value(); err != nil {
			return err
		}
	}
	d.i++
	d.j++
	// Duplicate keys are harmless if nothing differs. Otherwise an operation may apply to a member that a later duplicate
	// overrides.
	if len(d.dst) > m.dst && repeats(d.a, d.keys[m.keys:]) {
		return d.indexed(m)
	}
	d.close(m)
	return nil
}

func (d *differ) array() error {
	m := d.mark()
	d.path = append(d.path, segment{})
	top := len(d.path) - 1
	d.i++
	d.j++
	for n := 0; ; n++ {
		ca, cb := d.next()
		if ca != cb && (ca == ']' || cb == ']') {
			return d.indexed(m)
		}
		if ca == ']' {
			break
		}
		if n > 0 {
			if ca != ',' || cb != ',' {
				return errSyntax
			}
			d.i++
			d.j++
		}
		d.path[top].index = n
		if err := d.value(); err != nil {
			return err
		}
	}
	d.i++
	d.j++
	d.close(m)
	return nil
}

// rest writes the operations for the members after the comma at doc[i]. They end one of two objects that began at m and are
// equal up to there.
func (d *differ) rest(m mark, doc []byte, i int, op string) error {
	var buf [linearMax]member
	ms, end, err := appendMembers(buf[:0], doc, i+1)
	switch {
	case err != nil:
		return err
	case len(ms) == 0:
		return errSyntax
	}
	if keys := d.keys[m.keys:]; len(ms) > linearMax || len(keys) > linearMax || repeats(d.a, keys) || d.duplicates(keys, ms) {
		return d.indexed(m)
	}
	for k := range ms {
		d.path[len(d.path)-1].key = ms[k].raw
		if op == opAdd {
			d.emit(opAdd, ms[k].value)
		} else {
			d.emit(opRemove, nil)
		}
	}
	if op == opAdd {
		d.resync(d.i+1, end+1)
	} else {
		d.resync(end+1, d.j+1)
	}
	d.close(m)
	return nil
}

// duplicates reports whether a member may have one of the keys, or the key of another member.
func (d *differ) duplicates(keys []span, ms []member) bool {
	for k := range ms {
		raw := ms[k].raw
		if bytes.IndexByte(raw, '\\') >= 0 {
			return true
		}
		for _, s := range keys {
			if bytes.Equal(d.a[s.start:s.end], raw) {
				return true
			}
		}
		for _, other := range ms[:k] {
			if bytes.Equal(other.raw, raw) {
				return true
			}
		}
	}
	return false
}

// close ends the object or array that began at m.
func (d *differ) close(m mark) {
	d.path = d.path[:len(d.path)-1]
	d.keys = d.keys[:m.keys]
	d.bound(m.dst, d.b[m.j:d.j])
}

// bound replaces the operations in dst[from:], all of them inside one value, by that value if they are too long.
func (d *differ) bound(from int, value []byte) {
	if len(d.dst)-from > len(value)+patchSlack {
		d.dst = d.dst[:from]
		d.emit(opReplace, value)
	}
}

// indexed discards the output since m and compares the object or array that began there with an index. It does not return to
// lockstep inside: nested restarts would double the work with each level.
func (d *differ) indexed(m mark) error {
	d.dst = d.dst[:m.dst]
	d.keys = d.keys[:m.keys]
	d.path = d.path[:len(d.path)-1]
	i, err := skipValue(d.a, m.i)
	if err != nil {
		return err
	}
	j, err := skipValue(d.b, m.j)
	if err != nil {
		return err
	}
	if err := d.compare(d.a[m.i:i], d.b[m.j:j]); err != nil {
		return err
	}
	d.resync(i, j)
	return nil
}

const (
	opAdd     = `{"op":"add","path":"`
	opReplace = `{"op":"replace","path":"`
	opRemove  = `{"op":"remove","path":"`
)

// emit writes one operation on the current path; value is nil for a removal.
func (d *differ) emit(op string, value []byte) {
	if d.dst[len(d.dst)-1] == '}' {
		d.dst = append(d.dst, ',')
	}
	d.dst = append(d.dst, op...)
	for i := range d.path {
		d.dst = append(d.dst, '/')
		d.dst = appendSegment(d.dst, &d.path[i])
	}
	d.dst = append(d.dst, '"')
	if value != nil {
		d.dst = append(d.dst, `,"value":`...)
		d.dst = append(d.dst, value...)
	}
	d.dst = append(d.dst, '}')
}

// repeats reports whether two of the keys may be equal. A key with an escape counts as a repetition: it may equal an
// unescaped key.
func repeats(doc []byte, keys []span) bool {
	sorted := true
	for k := range keys {
		key := doc[keys[k].start:keys[k].end]
		if bytes.IndexByte(key, '\\') >= 0 {
			return true
		}
		if k > 0 && sorted {
			sorted = bytes.Compare(doc[keys[k-1].start:keys[k-1].end], key) < 0
		}
	}
	switch {
	case sorted: // maps are written in this order
		return false
	case len(keys) <= 24:
		for k := range keys {
			key := doc[keys[k].start:keys[k].end]
			for _, other := range keys[:k] {
				if other.end-other.start == len(key) && bytes.Equal(doc[other.start:other.end], key) {
					return true
				}
			}
		}
		return false
	}
	seen := make(map[string]struct{}, len(keys))
	for _, k := range keys {
		key := doc[k.start:k.end]
		if _, ok := seen[string(key)]; ok {
			return true
		}
		seen[string(key)] = struct{}{}
	}
	return false
}
