package object

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// Cutter is a compiled set of paths to cut from objects, and of paths whose values are replaced
// (see Redact). Immutable; a nil Cutter cuts nothing.
type Cutter struct {
	root   *node
	paths  []string // cut
	values []string // of paths, those whose values are redacted
	hashed []string // replaced by the output of mac
	mac    *MAC     // nil if hashed is empty

	copies copies
	// holding is the tree for objects that have copies of Secrets, which a search has found; nil:
	// no search.
	holding *node

	uses *Uses // nil: not recorded
}

// NewCutter compiles paths. A path consists of member names joined by dots. ["…"] with a JSON
// string quotes a name with special characters; [*] selects each element of an array and each
// member of an object:
//
//	metadata.managedFields
//	metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]
//	spec.containers[*].env[*].value
//	data[*]
//
// A path that matches nothing in an object cuts nothing. A path that cannot match in any object
// (see CheckPath) is rejected. The fields that identify an object (kind, apiVersion, metadata and
// its name, namespace, uid and resourceVersion) cannot be cut. NewCutter returns all errors at
// once, a *PathError each.
func NewCutter(paths []string) (*Cutter, error) {
	return newCutter(slices.Clone(paths), nil, nil)
}

// With returns a Cutter that cuts paths too; c is unchanged, and may be nil.
func (c *Cutter) With(paths ...string) (*Cutter, error) {
	if c == nil {
		return NewCutter(paths)
	}
	return c.derive(append(c.Paths(), paths...), c.values, c.hashed, c.mac, c.copies)
}

// Paths returns the paths that are cut, as they were given.
func (c *Cutter) Paths() []string {
	if c == nil {
		return nil
	}
	return slices.Clone(c.paths)
}

func newCutter(paths, hashed []string, mac *MAC) (*Cutter, error) {
	return (*Cutter)(nil).derive(paths, nil, hashed, mac, copies{})
}

// derive compiles a Cutter that records what c records.
func (c *Cutter) derive(paths, values, hashed []string, mac *MAC, policy copies) (*Cutter, error) {
	d := &Cutter{
		paths:  paths,
		values: values,
		hashed: hashed,
		mac:    mac,
		copies: policy,
	}
	if c != nil {
		d.uses = c.uses
	}
	return d, d.compile()
}

func (c *Cutter) compile() (err error) {
	policy := &c.copies
	c.root, err = c.newTree(c.paths, c.values)
	if err != nil || policy.secret == nil {
		return err
	}
	c.holding, err = c.newTree(slices.Concat(c.paths, policy.holding), slices.Concat(c.values, policy.holdingValues))
	return err
}

// newTree compiles paths that are cut and paths whose values are redacted, beside those whose
// values c replaces.
func (c *Cutter) newTree(paths, values []string) (*node, error) {
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
		root.add(segments, f, c.uses.of(path))
	}
	for _, path := range paths {
		add(path, removed)
	}
	for _, path := range c.hashed {
		add(path, replaced)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, path := range append(slices.Clone(c.hashed), values...) {
		segments, _ := parsePath(path) // it is among those above
		root.find(segments).redacts = true
	}
	if c.copies.annotations != allAnnotations {
		root.grow(segment{name: "metadata"}).grow(segment{name: "annotations"}).annotations = c.copies.annotations
	}
	return root.compile()
}

// Removes reports whether c cuts every value that a path can name, in any object. It returns false
// if path is not valid.
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
		return n.each.removes(segments[1:]) // the rules of [*] apply to each named member too: see compile
	}
	return n.member([]byte(segments[0].name)).removes(segments[1:])
}

// searchFormat is the version of the search for copies, for fingerprints.
const searchFormat = "copies/1"

// Fingerprint identifies what c does to an object: the paths that it cuts, the paths that it
// replaces, and the key. Two Cutters with the same fingerprint produce the same bytes for any
// object; the notation and the order of the paths do not matter. "" means that c changes nothing.
func (c *Cutter) Fingerprint() string {
	if c == nil || c.root.isIdle() {
		return ""
	}
	h := sha256.New()
	if c.root.hashes {
		fmt.Fprintf(h, "%s %s %v\n", macFormat, c.mac.long, c.mac.acrossObjects)
	}
	h.Write(c.root.canonical())
	if c.holding != nil {
		fmt.Fprintf(h, "%s %q", searchFormat, c.copies.marker)
		h.Write(c.holding.canonical())
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// fate states whether a value is kept, replaced or removed.
type fate uint8

const (
	kept fate = iota
	replaced
	removed // overrides replaced
)

// node is a node of a prefix tree of paths.
type node struct {
	fate    fate // of a value here; unless it is kept, members and each are empty
	hashes  bool // this node or a descendant is replaced
	redacts bool // a value here is redacted
	members []edge
	each    *node // [*]; for an object, of those members that are not in members

	annotations annotations // of metadata.annotations alone

	matched []*atomic.Bool // set if a value is here: of the paths that end here or, unless it is kept, below
}

type edge struct {
	name string
	node *node
}

// maxNodes bounds a compiled tree. Only many [*] beside many names, on several levels, exceed it.
const maxNodes = 1 << 14

var errTooManyNodes = errors.New("too many paths with [*] beside names")

func (n *node) add(segments []segment, f fate, matched *atomic.Bool) {
	n = n.find(segments)
	n.fate = max(n.fate, f)
	if matched != nil {
		n.matched = append(n.matched, matched)
	}
}

// appendMatched appends what a value here or below matches.
func (n *node) appendMatched(all []*atomic.Bool) []*atomic.Bool {
	all = append(all, n.matched...)
	if n.each != nil {
		all = n.each.appendMatched(all)
	}
	for _, e := range n.members {
		all = e.node.appendMatched(all)
	}
	return all
}

// find returns the node at a path, which it creates if it is missing.
func (n *node) find(segments []segment) *node {
	for _, s := range segments {
		n = n.grow(s)
	}
	return n
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

// compile returns a new tree in which each member has exactly one node: the rules of [*] are copied
// into the node of each name. It omits everything below a value that is not kept.
func (n *node) compile() (*node, error) {
	left := maxNodes
	c := compile(&left, n)
	if left < 0 {
		return nil, errTooManyNodes
	}
	return c, nil
}

// compile merges several nodes for the same values into one.
func compile(left *int, from ...*node) *node {
	n := &node{}
	*left--
	if *left < 0 {
		return n
	}
	var each []*node
	names := map[string][]*node{}
	for _, f := range from {
		n.fate = max(n.fate, f.fate)
		n.annotations = max(n.annotations, f.annotations)
		if f.each != nil {
			each = append(each, f.each)
		}
		for _, e := range f.members {
			names[e.name] = append(names[e.name], e.node)
		}
	}
	n.hashes = n.fate == replaced
	if n.fate != kept {
		for _, f := range from {
			n.matched = f.appendMatched(n.matched)
			n.redacts = n.redacts || f.redacts
		}
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

// isIdle reports whether all values here and below are kept.
func (n *node) isIdle() bool {
	return n.fate == kept && n.each == nil && len(n.members) == 0 && n.annotations == allAnnotations
}

// continues reports whether a path continues in the members of an object.
func (n *node) continues() bool {
	return n != nil && (n.members != nil || n.each != nil || n.annotations != allAnnotations)
}

var removedNode = &node{fate: removed} //nolint:gochecknoglobals // a constant

// member returns the node of one member of an object, nil if no path continues there.
func (n *node) member(name []byte) *node {
	if n == nil {
		return nil
	}
	if n.annotations != allAnnotations && n.annotations.removes(name) {
		return removedNode
	}
	for i := range n.members { // paths are few: a map is not faster
		if n.members[i].name == string(name) {
			return n.members[i].node
		}
	}
	return n.each
}

// canonical returns a canonical form of the tree: two trees with the same effect on objects have
// the same form.
func (n *node) canonical() []byte {
	switch n.fate {
	case removed:
		return []byte{'-'}
	case replaced:
		return []byte{'#'}
	}
	dst := []byte{'{'}
	switch n.annotations {
	case withoutCredentials:
		dst = fmt.Appendf(dst, "!%q", CredentialAnnotations())
	case listedOnly:
		dst = fmt.Appendf(dst, "&%q", SecretAnnotations())
	}
	var each []byte
	if n.each != nil {
		each = n.each.canonical()
		dst = append(append(dst, '*'), each...)
	}
	for _, e := range n.members {
		// A name whose rules equal those of [*] is omitted.
		if member := e.node.canonical(); string(member) != string(each) {
			dst = append(jsonscan.AppendString(dst, e.name), member...)
		}
	}
	return append(dst, '}')
}
