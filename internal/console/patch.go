package console

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// patched sets nodes to the changes of an RFC 6902 patch that resulted in after. The values before are unknown. after may be nil.
func (d *differ) patched(patch, after []byte) error {
	d.nodes, d.noise, d.ms = d.nodes[:0], d.noise[:0], d.ms[:0]
	ops, err := appendMembers(nil, trim(patch), nil)
	if err != nil {
		return fmt.Errorf("read the patch: %w", err)
	}
	var open []string // the path of the nodes that may contain the next operation
	shifted := shiftedLists(ops)
	for k := range ops {
		op, value := string(unquote(lookup(ops[k].value, "op"))), lookup(ops[k].value, "value")
		path := string(unquote(lookup(ops[k].value, "path")))
		if op == "test" {
			continue
		}
		steps := strings.Split(path, "/")[1:]
		if path == "" || !strings.HasPrefix(path, "/") {
			steps = nil
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
				parent = n.patchedElement(parent, steps[depth], shifted["/"+strings.Join(steps[:depth], "/")])
			} else {
				key := strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[depth])
				n.key = appendStringJSON(nil, key)
				parent = lookup(parent, key)
			}
			if depth == len(steps)-1 {
				n.kind, n.after = unknown, value
				if op == "add" {
					n.kind = added
				}
				d.nodes = append(d.nodes, n)
			} else if depth >= shared {
				d.nodes = append(d.nodes, n)
				open = append(open, steps[depth])
			}
		}
		if len(steps) == 0 {
			d.nodes = append(d.nodes[:0], node{kind: unknown, from: -1, to: -1, after: value})
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

// patchedElement makes n an element of list, the final state, and returns the element. If the patch added or removed
// elements of the list, the index may have moved, so the element is not named.
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

// shiftedLists returns the paths whose children were added or removed: if such a path is a list, its indexes have moved.
func shiftedLists(ops []member) map[string]bool {
	out := make(map[string]bool)
	for k := range ops {
		if op := unquote(lookup(ops[k].value, "op")); string(op) == "replace" || string(op) == "test" {
			continue
		}
		path := unquote(lookup(ops[k].value, "path"))
		if at := bytes.LastIndexByte(path, '/'); at >= 0 {
			out[string(path[:at])] = true
		}
	}
	return out
}

// appendStringJSON appends text in the form between the quotes of a JSON string.
func appendStringJSON(dst []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
