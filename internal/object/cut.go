package object

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Cutter is a compiled set of paths to be cut from objects, and of paths whose values are replaced (see Redact).
// Immutable; nil cuts nothing.
type Cutter struct {
	root   *node
	paths  []string // cut
	hashed []string // replaced by what mac makes of them
	mac    *MAC     // nil where hashed is empty
}

// NewCutter compiles paths: member names joined by dots, ["…"] with a JSON string for a name that is not plain, [*]
// for each element of an array and each member of an object:
//
//	metadata.managedFields
//	metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]
//	spec.containers[*].env[*].value
//	data[*]
//
// A path that names nothing in an object cuts nothing; one that can name nothing in any (see CheckPath) is refused. What identifies an object (kind, apiVersion, metadata and its
// name, namespace, uid and resourceVersion) cannot be cut. All that is wrong is returned at once, a *PathError each.
func NewCutter(paths []string) (*Cutter, error) {
	return newCutter(slices.Clone(paths), nil, nil)
}

// With is a Cutter that cuts paths too; c is unchanged, and may be nil.
func (c *Cutter) With(paths ...string) (*Cutter, error) {
	if c == nil {
		return NewCutter(paths)
	}
	return newCutter(append(c.Paths(), paths...), c.hashed, c.mac)
}

// Paths are the paths that are cut, as they were given.
func (c *Cutter) Paths() []string {
	if c == nil {
		return nil
	}
	return slices.Clone(c.paths)
}

func newCutter(paths, hashed []string, mac *MAC) (*Cutter, error) {
	c := &Cutter{paths: paths, hashed: hashed, mac: mac}
	root := &node{}
	var errs []error
	add := func(path string, f fate) {
		segments, err := parsePath(path)
		switch {
		case err != nil:
		case identifies(segments):
			err = &PathError{Path: path, Column: 1, Msg: "identifies the object and cannot be cut"}
		default:
			err = insideText(path, segments)
		}
		if err != nil {
			errs = append(errs, err)
			return
		}
		root.add(segments, f)
	}
	for _, path := range paths {
		add(path, removed)
	}
	for _, path := range hashed {
		add(path, replaced)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var err error
	c.root, err = root.compile()
	return c, err
}

// Removes tells that c cuts all that a path can name, in any object: nothing is left to be seen there. False for what is no path.
func (c *Cutter) Removes(path string) bool {
	segments, err := parsePath(path)
	if err != nil || c == nil {
		return false
	}
	return c.root.removes(segments)
}

func (n *node) removes(segments []segment) bool {
	switch {
	case n == nil:
		return false
	case n.fate != kept || len(segments) == 0:
		return n.fate == removed
	case segments[0].each:
		return n.each.removes(segments[1:]) // what is cut of each is cut under a name, too: see compile
	}
	return n.member([]byte(segments[0].name)).removes(segments[1:])
}

// Fingerprint names all that c does to an object: what it cuts, what it replaces and with which key. Two Cutters of one
// fingerprint make the same bytes of any object; how their paths were written or ordered does not count. "" is nothing.
func (c *Cutter) Fingerprint() string {
	if c == nil || c.root.idle() {
		return ""
	}
	h := sha256.New()
	if c.root.hashes {
		fmt.Fprintf(h, "%s %s %v\n", macFormat, c.mac.long, c.mac.acrossObjects)
	}
	h.Write(c.root.appendCanonical(nil))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// fate is what becomes of a value.
type fate uint8

const (
	kept fate = iota
	replaced
	removed // wins over replaced
)

// node is what the paths have in common up to one point: a prefix tree.
type node struct {
	fate    fate // of a value here; where it is not kept, members and each are empty
	hashes  bool // this or a node below is replaced
	members []edge
	each    *node // [*]; of an object's members for those that are not among members
}

type edge struct {
	name string
	node *node
}

// maxNodes bounds a compiled tree. Only many [*] beside many names, level after level, make so many.
const maxNodes = 1 << 14

var errTooManyNodes = errors.New("too many paths with [*] beside names")

func (n *node) add(segments []segment, f fate) {
	for _, s := range segments {
		n = n.grow(s)
	}
	n.fate = max(n.fate, f)
}

func (n *node) grow(s segment) *node {
	if s.each {
		if n.each == nil {
			n.each = &node{}
		}
		return n.each
	}
	for i := range n.members {
		if n.members[i].name == s.name {
			return n.members[i].node
		}
	}
	child := &node{}
	n.members = append(n.members, edge{s.name, child})
	return child
}

// compile is a tree of its own in which a member is found under one node only: what [*] says of it is said under its name
// too. Whatever lies below a value that is not kept is left out.
func (n *node) compile() (*node, error) {
	left := maxNodes
	c := compile(&left, n)
	if left < 0 {
		return nil, errTooManyNodes
	}
	return c, nil
}

// compile makes one node of several that stand for the same values.
func compile(left *int, from ...*node) *node {
	n := &node{}
	if *left--; *left < 0 {
		return n
	}
	var each []*node
	names := map[string][]*node{}
	for _, f := range from {
		n.fate = max(n.fate, f.fate)
		if f.each != nil {
			each = append(each, f.each)
		}
		for _, e := range f.members {
			names[e.name] = append(names[e.name], e.node)
		}
	}
	n.hashes = n.fate == replaced
	if n.fate != kept {
		return n
	}
	if len(each) > 0 {
		n.each = compile(left, each...)
		n.hashes = n.each.hashes
	}
	for name, nodes := range names {
		child := compile(left, append(nodes, each...)...)
		n.members = append(n.members, edge{name, child})
		n.hashes = n.hashes || child.hashes
	}
	slices.SortFunc(n.members, func(a, b edge) int { return cmp.Compare(a.name, b.name) })
	return n
}

// idle tells whether nothing happens to values here and below.
func (n *node) idle() bool { return n.fate == kept && n.each == nil && len(n.members) == 0 }

// member is the node of one member of an object, nil where no path goes on there.
func (n *node) member(name []byte) *node {
	if n == nil {
		return nil
	}
	for i := range n.members { // paths are few: no map beats this
		if n.members[i].name == string(name) {
			return n.members[i].node
		}
	}
	return n.each
}

// appendCanonical appends what the tree does to objects, the same for all trees that do the same.
func (n *node) appendCanonical(dst []byte) []byte {
	switch n.fate {
	case removed:
		return append(dst, '-')
	case replaced:
		return append(dst, '#')
	}
	dst = append(dst, '{')
	var each []byte
	if n.each != nil {
		each = n.each.appendCanonical(nil)
		dst = append(append(dst, '*'), each...)
	}
	for _, e := range n.members {
		// A name of which nothing else is said than of every name.
		if member := e.node.appendCanonical(nil); string(member) != string(each) {
			dst = append(appendString(dst, e.name), member...)
		}
	}
	return append(dst, '}')
}
