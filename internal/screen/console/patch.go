package console

import (
	"strconv"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
	"github.com/kubecdc/kubecdc/internal/object/patch"
)

// diffPatch sets nodes to the changes of an RFC 6902 patch that resulted in after. The values
// before are unknown. after may be nil.
func (d *differ) diffPatch(change, after []byte) error {
	d.nodes = d.nodes[:0]
	d.noise = d.noise[:0]
	d.ms = d.ms[:0]
	ops, err := patch.Parse(change)
	if err != nil {
		return err
	}
	var open []string // the path of the nodes that may contain the next operation
	shifted := shiftedLists(ops)
	for k := range ops {
		op, steps := &ops[k], ops[k].Path
		if op.Op == "test" {
			continue
		}
		if !d.all && len(steps) >= 2 && steps[0] == "metadata" && isNoise([]byte(steps[1])) {
			d.noise = append(d.noise, "metadata."+steps[1])
			continue
		}
		if len(d.nodes) == 0 && len(steps) > 0 {
			d.nodes = append(d.nodes, node{from: -1, to: -1})
		}
		shared := 0
		for shared < len(open) && shared < len(steps)-1 && open[shared] == steps[shared] {
			shared++
		}
		open = open[:shared]
		parent := trim(after)
		for depth := range steps {
			n := node{depth: depth + 1, from: -1, to: -1}
			if len(parent) > 0 && parent[0] == '[' {
				d.nodes[d.lastAt(depth)].list = true
				parent = n.patchedElement(parent, steps[depth], shifted[pathOf(steps[:depth])])
			} else {
				n.key = jsonscan.AppendInside(nil, steps[depth])
				parent = lookup(parent, steps[depth])
			}
			if depth == len(steps)-1 {
				n.kind, n.after = unknown, op.Value
				if op.Op == "add" {
					n.kind = added
				}
				d.nodes = append(d.nodes, n)
			} else if depth >= shared {
				d.nodes = append(d.nodes, n)
				open = append(open, steps[depth])
			}
		}
		if len(steps) == 0 {
			d.nodes = append(d.nodes[:0], node{
				kind:  unknown,
				from:  -1,
				to:    -1,
				after: op.Value,
			})
			return nil
		}
	}
	return nil
}

// lastAt returns the index of the last node of this depth.
func (d *differ) lastAt(depth int) int {
	k := len(d.nodes) - 1
	for k > 0 && d.nodes[k].depth != depth {
		k--
	}
	return k
}

// patchedElement makes n an element of list, the final state, and returns the element. If the patch
// added or removed elements of the list, the index may have moved, so the element is not named.
func (n *node) patchedElement(list []byte, step string, shifted bool) []byte {
	n.elem = true
	at, err := strconv.Atoi(step)
	if err != nil {
		return nil
	}
	n.from, n.to = at, at
	if shifted {
		return nil
	}
	ms, err := appendMembers(nil, list, nil)
	if err != nil || at < 0 || at >= len(ms) {
		return nil
	}
	if la, _ := mergeLabels(ms, ms); la != nil {
		n.label = la[at]
	}
	return ms[at].value
}

// pathOf returns a path as one text.
func pathOf(steps []string) string {
	var path strings.Builder
	for _, step := range steps {
		path.WriteString("\x00" + step)
	}
	return path.String()
}

// shiftedLists returns the paths, as pathOf, whose children were added or removed: if such a path
// is a list, its indexes have moved.
func shiftedLists(ops []patch.Operation) map[string]bool {
	out := make(map[string]bool)
	for k := range ops {
		op := &ops[k]
		if op.Op != "replace" && op.Op != "test" && len(op.Path) > 0 {
			out[pathOf(op.Path[:len(op.Path)-1])] = true
		}
	}
	return out
}
