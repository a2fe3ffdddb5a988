package patch

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

const (
	// maxDepth is the depth to which Append descends. Deeper values are compared byte by byte and
	// replaced as a whole. This bounds the stack, and the length of a path in the patch.
	maxDepth = 100

	// slack is how many bytes longer than a value the operations inside it may be before one
	// replacement takes their place. It is not 0: a few paths are more readable than a slightly
	// shorter copy of a whole object.
	slack = 512

	// maxKept is the largest buffer that a Differ keeps for its next patch. Without this bound,
	// each of a thousand workers would eventually hold buffers of the size of the largest object.
	maxKept = 64 << 10

	// maxVisited is the number of bytes that one comparison may visit. It bounds for how long one
	// event can occupy an encoder. The clock has no influence: an event is encoded the same each
	// time. Two versions of an object of 3 MiB, twice what etcd accepts by default, stay below it.
	maxVisited = 64 << 20
)

// ErrCostly means that a comparison would visit more than maxVisited bytes.
var ErrCostly = fmt.Errorf("comparing both versions of the object would read more than %d MiB", maxVisited>>20)

// Faults of the values that the comparison finds.
var (
	errSyntax   = errors.New("malformed JSON")
	errTrailing = errors.New("data after the JSON value")
)

// errLockstep ends a traversal in lockstep that has compared too much twice.
var errLockstep = errors.New("lockstep costs too much")

// Append appends to dst the RFC 6902 patch that turns before into after, as a JSON array of
// add, remove and replace operations; [] if the documents are equal. The patch is at most 600 bytes
// longer than after. The work is linear in the length of the documents, whatever their nesting;
// documents for which it exceeds maxVisited are an error.
//
// Strings are compared by meaning ("a" is "\u0061"), numbers by notation (1 is not 1.0): at worst
// this causes a redundant replacement. The last of duplicate keys counts, as in encoding/json.
//
// Both documents must be valid JSON in UTF-8. For other input the result is an error or a
// meaningless patch, never a panic. The documents may be in the array of dst, but only below its
// length.
func Append(dst, before, after []byte) ([]byte, error) {
	var d Differ
	return d.Append(dst, before, after)
}

// Differ computes patches. It traverses two documents in lockstep. Versions of one object are
// mostly equal, so it mostly reads only one of them. A comparison of whole words finds that
// a[i:same] equals the bytes of b from j on; inside that part only the tokens of a are read. If the
// documents diverge inside a scalar, both scalars are skipped and the traversal continues after
// them. If they diverge between members or elements, the enclosing object or array is compared
// again with an index (index.go).
//
// Objects that diverge so on each level would be compared again on each level. So the bytes that
// are compared again are counted. If they are more than both documents have, the index replaces the
// lockstep for the whole documents. The patch is the same.
//
// It keeps its allocations for the next patch, up to 64 KiB each. The zero value is ready. It
// belongs to one goroutine.
type Differ struct {
	a, b []byte
	i, j int // the next byte of each
	same int // a[i:same] == b[j:j+same-i], and same is maximal
	// diverging has the starts, in a, of the nested objects and arrays that contain same, where the
	// documents diverge. Empty: not known.
	diverging []int
	open      []int // the memory of diverging

	path []segment
	keys []span // of the members read in the current objects, innermost last, in a

	operations
	placesA, placesB places
	pairs            pairings

	visited int  // bytes read, each as often as it was read
	again   int  // bytes that the index compared after the lockstep
	indexes bool // the lockstep is given up
}

// segment is one name or index of a JSON pointer.
type segment struct {
	key   []byte // a member's key as written between the quotes; nil: an element
	index int
	node  int32 // in operations.nodes; 0: not there yet
}

type span struct{ start, end int }

// Append is the function Append, with the memory of the former patches.
func (d *Differ) Append(dst, before, after []byte) ([]byte, error) {
	if d.path == nil { // enough for all but the largest objects
		d.path = make([]segment, 0, 32)
		d.keys = make([]span, 0, 128)
	}
	d.a, d.b = before, after
	d.visited, d.again = 0, 0
	err := d.run()
	if errors.Is(err, errLockstep) {
		d.indexes = true
		err = d.run()
	}
	out := dst
	if err == nil {
		out = d.operations.append(append(dst, '['))
		out = append(out, ']')
	}
	d.release()
	if err != nil {
		return dst, fmt.Errorf("patch: %w", err)
	}
	return out, nil
}

// Visited returns the number of bytes that the last comparison has read, each as often as it was
// read. It measures for how long the comparison ran.
func (d *Differ) Visited() int { return d.visited }

// run compares the documents from their beginning.
func (d *Differ) run() error {
	d.path, d.keys = d.path[:0], d.keys[:0]
	d.pairs.truncate(&pairings{})
	d.operations.reset()
	d.resync(0, 0)
	if err := d.value(); err != nil {
		return err
	}
	d.next()
	if d.i < len(d.a) || d.j < len(d.b) {
		return errTrailing
	}
	return nil
}

// release releases both documents, and the memory that an exceptionally large one has taken.
func (d *Differ) release() {
	d.a, d.b = nil, nil
	d.indexes = false
	clear(d.path[:cap(d.path)])
	if cap(d.keys) > maxKept/16 { // has no pointers, but is as long as the members of the widest objects
		d.keys = make([]span, 0, 128)
	}
	if cap(d.open) > maxKept/8 {
		d.open = nil
	}
	d.diverging = nil
	d.operations.release()
	d.placesA.release()
	d.placesB.release()
	if cap(d.pairs.elements) > maxKept/8 || cap(d.pairs.heads)+cap(d.pairs.tails) > maxKept/8 {
		d.pairs = pairings{}
	}
}

// mark is the state at the start of an object or array.
type mark struct {
	i, j, keys int
	written
}

func (d *Differ) mark() mark {
	return mark{
		i:       d.i,
		j:       d.j,
		keys:    len(d.keys),
		written: d.written(),
	}
}

// resync moves to i and j and finds how far the documents agree from there. Each byte is compared
// once: the next call happens only after the traversal has left the equal part.
func (d *Differ) resync(i, j int) {
	d.i = i
	d.j = j
	d.diverging = nil
	d.same = i + d.common(d.a[i:], d.b[j:])
}

// common returns the length of the common beginning of a and b.
func (d *Differ) common(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	k := 0
	for ; k+8 <= n; k += 8 {
		if x := binary.LittleEndian.Uint64(a[k:]) ^ binary.LittleEndian.Uint64(b[k:]); x != 0 {
			k += bits.TrailingZeros64(x) / 8
			d.visited += k
			return k
		}
	}
	for k < n && a[k] == b[k] {
		k++
	}
	d.visited += k
	return k
}

// next returns the first byte of the next token of each document, 0 at the end.
func (d *Differ) next() (ca, cb byte) {
	if d.i < d.same {
		if c := d.a[d.i]; c > ' ' {
			return c, c
		}
	}
	i, j := jsonscan.SkipSpace(d.a, d.i), jsonscan.SkipSpace(d.b, d.j)
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

func (d *Differ) value() error {
	ca, cb := d.next()
	if ca == cb && (ca == '{' || ca == '[') && len(d.path) < maxDepth {
		switch {
		case d.indexes:
			return d.index(d.mark())
		case d.skipEqual():
			return nil
		case ca == '{':
			return d.object()
		}
		return d.array()
	}
	i := jsonscan.ValueEnd(d.a, d.i)
	if i < 0 {
		return jsonscan.ErrorAt(d.a, i)
	}
	d.visited += i - d.i
	// Below same even the byte after the value is equal, so the value cannot be the beginning of a
	// longer number.
	if i < d.same {
		d.j += i - d.i
		d.i = i
		return nil
	}
	j := jsonscan.ValueEnd(d.b, d.j)
	if j < 0 {
		return jsonscan.ErrorAt(d.b, j)
	}
	d.visited += j - d.j
	d.scalar(d.a[d.i:i], d.b[d.j:j])
	d.resync(i, j)
	return d.bounded()
}

// scalar writes the operation that turns va into vb, which are not looked into.
func (d *Differ) scalar(va, vb []byte) {
	d.visited += min(len(va), len(vb))
	if !jsonscan.SameScalar(va, vb) {
		d.emit(opReplace, vb)
	}
}

// bounded returns an error if the comparison, or its lockstep, costs too much.
func (d *Differ) bounded() error {
	switch {
	case d.visited > maxVisited:
		return ErrCostly
	case !d.indexes && (d.again > len(d.a)+len(d.b) || d.size > 2*(len(d.b)+slack)):
		return errLockstep
	}
	return nil
}

// skipEqual skips an object or array that ends before the documents diverge, and reports whether it
// did. Otherwise it records which objects and arrays inside contain the divergence, so that it
// reads each byte at most once. The outermost one is always traversed, which checks the syntax.
func (d *Differ) skipEqual() bool {
	end := 0
	switch {
	case len(d.path) == 0:
	case len(d.diverging) == 0:
		end = d.diverge()
		d.visited += cmp.Or(end, d.same) - d.i
	case d.diverging[0] == d.i:
		d.diverging = d.diverging[1:]
	default:
		end = max(0, jsonscan.ValueEnd(d.a[:d.same], d.i))
		d.visited += cmp.Or(end, d.same) - d.i
	}
	if end == 0 {
		return false
	}
	d.i, d.j = end, d.j+end-d.i
	return true
}

// diverge returns the index after the object or array that begins at a[i], 0 if it ends after the
// documents diverge.
func (d *Differ) diverge() int {
	open, doc := d.open[:0], d.a[:d.same]
	for i := d.i; i < len(doc); {
		c := doc[i]
		if c == '"' {
			end := jsonscan.StringEnd(doc, i)
			if end < 0 {
				break
			}
			i = end
			if i < len(doc) && (doc[i] == ':' || doc[i] == ',') {
				i++
			}
			continue
		}
		switch c | ' ' { // the bracket and the brace Differ only by this bit
		case '{':
			open = append(open, i)
		case '}':
			open = open[:len(open)-1]
			if len(open) == 0 {
				return i + 1
			}
		}
		i++
	}
	d.open = open
	if len(open) > 0 {
		d.diverging = open[1:]
	}
	return 0
}

func (d *Differ) object() error {
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
		end := jsonscan.StringEnd(d.a, d.i)
		if end < 0 {
			return jsonscan.ErrorAt(d.a, end)
		}
		if end > d.same {
			return d.indexed(m)
		}
		d.path[top] = segment{key: d.a[d.i+1 : end-1]}
		d.keys = append(d.keys, span{d.i + 1, end - 1})
		d.j += end - d.i
		d.i = end
		if d.i >= d.same || d.a[d.i] != ':' { // the colon may follow white space
			ca, cb = d.next()
			if ca != ':' || cb != ':' {
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
	// Duplicate keys are harmless if nothing differs. Otherwise an operation may apply to a member
	// that a later duplicate overrides.
	if len(d.ops) > m.ops && repeats(d.a, d.keys[m.keys:]) {
		return d.indexed(m)
	}
	d.close(m)
	return nil
}

func (d *Differ) array() error {
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
		d.path[top] = segment{index: n}
		if err := d.value(); err != nil {
			return err
		}
	}
	d.i++
	d.j++
	d.close(m)
	return nil
}

// rest writes the operations for the members after the comma at doc[i]. They end one of two objects
// that began at m and are equal up to there.
func (d *Differ) rest(m mark, doc []byte, i int, op op) error {
	var buf [linearMax]member
	ms, end, err := appendMembers(buf[:0], doc, i+1)
	switch {
	case err != nil:
		return err
	case len(ms) == 0:
		return errSyntax
	}
	d.visited += end - i
	if keys := d.keys[m.keys:]; len(ms) > linearMax || len(keys) > linearMax || repeats(d.a, keys) ||
		d.hasDuplicates(keys, ms) {
		return d.indexed(m)
	}
	for k := range ms {
		d.at(segment{key: ms[k].raw})
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

// hasDuplicates reports whether a member may have one of the keys, or the key of another member.
func (d *Differ) hasDuplicates(keys []span, ms []member) bool {
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
func (d *Differ) close(m mark) {
	d.path = d.path[:len(d.path)-1]
	d.keys = d.keys[:m.keys]
	d.bound(m.written, d.b[m.j:d.j])
}

// bound replaces the operations since w, all of them inside one value, by that value if they are
// too long.
func (d *Differ) bound(w written, value []byte) {
	if d.exceeds(w, value) {
		d.operations.truncate(w)
		d.emit(opReplace, value)
	}
}

// exceeds reports whether the operations since w are too long for that value.
func (d *Differ) exceeds(w written, value []byte) bool {
	return d.size-w.size > len(value)+slack
}

// indexed discards the output since m and compares the object or array that began there with an
// index.
func (d *Differ) indexed(m mark) error {
	d.operations.truncate(m.written)
	d.keys = d.keys[:m.keys]
	d.path = d.path[:len(d.path)-1]
	return d.index(m)
}

// at sets the last segment of the path.
func (d *Differ) at(s segment) { d.path[len(d.path)-1] = s }

// emit adds one operation on the current path; value is nil for a removal.
func (d *Differ) emit(op op, value []byte) { d.operations.add(op, d.path, value) }

// repeats reports whether two of the keys may be equal. A key with an escape counts as a
// repetition: it may equal an unescaped key.
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
