package console

import (
	"bytes"
	"fmt"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// kind is the kind of a node of a difference.
type kind uint8

const (
	inside  kind = iota // a node below has changed
	added               // only in after
	removed             // only in before
	changed             // in both; at least one is not a container, or they are of different kinds
	ordered             // the elements of the list have another order
	unknown             // changed to after, or removed if that is nil; the value before is unknown
)

// node is one step on the way to a change, or the change itself. A difference is a list of nodes in
// the order of the document, each followed by the nodes below it, which are one level deeper.
type node struct {
	kind  kind
	list  bool // an array whose elements were compared: nodes one level deeper are elements
	elem  bool // an element of a list
	depth int

	key           []byte // of a member, as written between the quotes
	label         []byte // of an element: the value of its merge key; nil if it has none
	from, to      int    // of an element: its index before and after; -1 if it has none
	before, after []byte
	order         []int // ordered: the old indexes of the elements that stayed, in the new order
}

// differ compares objects. It reuses its allocations for the next pair.
type differ struct {
	all   bool // noise becomes nodes, too
	nodes []node
	noise []string // changed fields that are not among the nodes
	ms    []member // members of the containers under comparison, innermost last
}

// isNoise reports whether a field of metadata changes in every update, or is not written by the
// user.
func isNoise(key []byte) bool {
	switch string(key) {
	case "resourceVersion", "generation", "managedFields":
		return true
	}
	return false
}

// diff sets nodes and noise to the changes from before to after, both JSON. They are valid until
// the next call.
func (d *differ) diff(before, after []byte) error {
	d.nodes = d.nodes[:0]
	d.noise = d.noise[:0]
	d.ms = d.ms[:0]
	before, after = trim(before), trim(after)
	if len(before) == 0 || len(after) == 0 {
		return fmt.Errorf("compare objects: %w", jsonscan.ErrTruncated)
	}
	if err := d.diffValues(node{
		from:   -1,
		to:     -1,
		before: before,
		after:  after,
	}); err != nil {
		return fmt.Errorf("compare objects: %w", err)
	}
	return nil
}

// diffValues adds n and the changes below it, if n.before and n.after differ.
func (d *differ) diffValues(n node) error {
	a, b := n.before, n.after
	if bytes.Equal(a, b) {
		return nil
	}
	if !isContainer(a) || !isContainer(b) || a[0] != b[0] || n.depth >= maxDepth {
		if !jsonscan.SameScalar(a, b) {
			n.kind = changed
			d.nodes = append(d.nodes, n)
		}
		return nil
	}
	at, top := len(d.nodes), len(d.ms)
	n.kind, n.list = inside, a[0] == '['
	d.nodes = append(d.nodes, n)
	var err error
	d.ms, err = appendMembers(d.ms, a, nil)
	if err != nil {
		return err
	}
	mid := len(d.ms)
	d.ms, err = appendMembers(d.ms, b, d.ms[top:mid])
	if err != nil {
		return err
	}
	// A nested call may reallocate d.ms; these slices keep their array.
	as, bs := d.ms[top:mid:mid], d.ms[mid:len(d.ms):len(d.ms)]
	if n.list {
		err = d.diffArrays(as, bs, n.depth+1)
	} else {
		err = d.diffObjects(as, bs, n.key, n.depth+1)
	}
	d.ms = d.ms[:top]
	if len(d.nodes) == at+1 { // only the order of members or the notation differs
		d.nodes = d.nodes[:at]
	}
	return err
}

func (d *differ) diffObjects(as, bs []member, key []byte, depth int) error {
	as, bs = lastOfEach(as), lastOfEach(bs)
	metadata := depth == 2 && string(key) == "metadata"
	quiet := func(k []byte) bool {
		if !metadata || d.all || !isNoise(k) {
			return false
		}
		d.noise = append(d.noise, "metadata."+string(k))
		return true
	}
	find := index{ms: bs}
	kept := make([]bool, 0, 64)
	kept = append(kept, make([]bool, len(bs))...)
	for k := range as {
		n := node{
			depth:  depth,
			key:    as[k].key,
			from:   -1,
			to:     -1,
			before: as[k].value,
		}
		to := find.member(k, as[k].key)
		if to < 0 {
			if !quiet(n.key) {
				n.kind = removed
				d.nodes = append(d.nodes, n)
			}
			continue
		}
		kept[to] = true
		n.after = bs[to].value
		if bytes.Equal(n.before, n.after) || quiet(n.key) {
			continue
		}
		if err := d.diffValues(n); err != nil {
			return err
		}
	}
	for k := range bs {
		if !kept[k] && !quiet(bs[k].key) {
			d.nodes = append(d.nodes, node{
				kind:  added,
				depth: depth,
				key:   bs[k].key,
				from:  -1,
				to:    -1,
				after: bs[k].value,
			})
		}
	}
	return nil
}

// few is the number of members up to which a key is searched linearly.
const few = 16

// index finds members by key. It builds the map only if necessary: members nearly always have the
// same order.
type index struct {
	ms    []member
	byKey map[string]int
}

// member returns the index of the member with this key, probably hint; -1 if there is none.
func (i *index) member(hint int, key []byte) int {
	if hint < len(i.ms) && bytes.Equal(i.ms[hint].key, key) {
		return hint
	}
	if len(i.ms) <= few && bytes.IndexByte(key, '\\') < 0 {
		for k := range i.ms {
			if bytes.Equal(jsonscan.Unescape(i.ms[k].key), key) {
				return k
			}
		}
		return -1
	}
	if i.byKey == nil {
		i.byKey = make(map[string]int, len(i.ms))
		for k := range i.ms {
			i.byKey[string(jsonscan.Unescape(i.ms[k].key))] = k
		}
	}
	if k, ok := i.byKey[string(jsonscan.Unescape(key))]; ok {
		return k
	}
	return -1
}

// lastOfEach drops members that a later one with the same key hides.
func lastOfEach(ms []member) []member {
	sorted, plain := true, true
	for k := range ms {
		sorted = sorted && (k == 0 || bytes.Compare(ms[k-1].key, ms[k].key) < 0)
		plain = plain && bytes.IndexByte(ms[k].key, '\\') < 0
	}
	if plain && (sorted || len(ms) <= 2*few && distinct(ms)) {
		return ms
	}
	last := make(map[string]int, len(ms))
	for k := range ms {
		last[string(jsonscan.Unescape(ms[k].key))] = k
	}
	if len(last) == len(ms) {
		return ms
	}
	out := make([]member, 0, len(last))
	for k := range ms {
		if last[string(jsonscan.Unescape(ms[k].key))] == k {
			out = append(out, ms[k])
		}
	}
	return out
}

func distinct(ms []member) bool {
	for k := range ms {
		for _, other := range ms[:k] {
			if len(other.key) == len(ms[k].key) && bytes.Equal(other.key, ms[k].key) {
				return false
			}
		}
	}
	return true
}
