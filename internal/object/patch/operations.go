package patch

import "slices"

// op is the kind of an operation.
type op uint8

const (
	opAdd op = iota
	opReplace
	opRemove
)

func (o op) head() string {
	switch o {
	case opAdd:
		return `{"op":"add","path":"`
	case opReplace:
		return `{"op":"replace","path":"`
	case opRemove:
		return `{"op":"remove","path":"`
	}
	return ""
}

const valueName = `,"value":`

// operations are the operations of a patch before they are written. A value may replace the
// operations inside it, on each level of nesting. So only their lengths are added up: each byte of
// the patch is written once, at the end.
type operations struct {
	ops  []operation
	size int // as written, without the brackets of the array

	nodes []pathNode // of the paths; nodes[0] is the empty path
	text  []byte     // of the segments
	chain []int32
}

type operation struct {
	op    op
	path  int32  // its node
	value []byte // nil for a removal
}

// pathNode is the last segment of a path. Paths with a common beginning share its nodes.
type pathNode struct {
	before     int32 // the node of the segment before it
	start, end int32 // in text: "/" and the name
	size       int32 // of the path up to here, as written
}

// written is the length of the operations at one time.
type written struct{ ops, size int }

func (o *operations) written() written { return written{len(o.ops), o.size} }

func (o *operations) reset() {
	o.ops, o.size = o.ops[:0], 0
	o.nodes, o.text = append(o.nodes[:0], pathNode{}), o.text[:0]
}

// truncate removes the operations since w.
func (o *operations) truncate(w written) { o.ops, o.size = o.ops[:w.ops], w.size }

// release releases the values, and the memory that an exceptionally large patch has taken.
func (o *operations) release() {
	clear(o.ops[:cap(o.ops)])
	if cap(o.ops) > maxKept/64 || cap(o.nodes) > maxKept/16 || cap(o.text) > maxKept {
		*o = operations{}
	}
}

// add adds an operation on a path.
func (o *operations) add(op op, path []segment, value []byte) {
	last := o.last(path)
	o.size += len(op.head()) + int(o.nodes[last].size) + len(`"}`)
	if len(o.ops) > 0 {
		o.size += len(",")
	}
	if value != nil {
		o.size += len(valueName) + len(value)
	}
	o.ops = append(o.ops, operation{op, last, value})
}

// last returns the node of a path. It adds the nodes that do not exist yet.
func (o *operations) last(path []segment) int32 {
	k := len(path)
	for k > 0 && path[k-1].node == 0 {
		k--
	}
	var last int32
	if k > 0 {
		last = path[k-1].node
	}
	for ; k < len(path); k++ {
		start := len(o.text)
		o.text = appendSegment(append(o.text, '/'), &path[k])
		size := o.nodes[last].size + int32(len(o.text)-start)
		o.nodes = append(o.nodes, pathNode{
			before: last,
			start:  int32(start),
			end:    int32(len(o.text)),
			size:   size,
		})
		last = int32(len(o.nodes) - 1)
		path[k].node = last
	}
	return last
}

// append appends the operations as the elements of a JSON array.
func (o *operations) append(dst []byte) []byte {
	dst = slices.Grow(dst, o.size+1)
	for k := range o.ops {
		operation := &o.ops[k]
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, operation.op.head()...)
		dst = o.appendPath(dst, operation.path)
		dst = append(dst, '"')
		if operation.value != nil {
			dst = append(dst, valueName...)
			dst = append(dst, operation.value...)
		}
		dst = append(dst, '}')
	}
	return dst
}

func (o *operations) appendPath(dst []byte, last int32) []byte {
	o.chain = o.chain[:0]
	for ; last != 0; last = o.nodes[last].before {
		o.chain = append(o.chain, last)
	}
	for _, k := range slices.Backward(o.chain) {
		s := &o.nodes[k]
		dst = append(dst, o.text[s.start:s.end]...)
	}
	return dst
}
