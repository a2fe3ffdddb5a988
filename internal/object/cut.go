package object

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxSegments bounds the length of a path, and with it the recursion of a Scanner.
const maxSegments = 64

// Cutter is a compiled set of paths to be cut from objects. Immutable; nil cuts nothing.
type Cutter struct {
	root  *node
	paths []string
}

// node is what the paths have in common up to one point: a prefix tree.
type node struct {
	cut     bool // a path ends here; then members and each do not matter
	members []edge
	each    *node // [*]
}

type edge struct {
	name string
	node *node
}

// PathError says where a path is wrong.
type PathError struct {
	Path   string
	Column int // in bytes, from 1
	Msg    string
}

func (e *PathError) Error() string {
	return fmt.Sprintf("path %q: column %d: %s", e.Path, e.Column, e.Msg)
}

// NewCutter compiles paths: member names joined by dots, ["…"] with a JSON string for a name that is not plain, [*]
// for every element of an array:
//
//	metadata.managedFields
//	metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]
//	spec.containers[*].env[*].value
//
// A path that names nothing in an object cuts nothing. What identifies an object (kind, apiVersion, metadata and its
// name, namespace, uid and resourceVersion) cannot be cut. All that is wrong is returned at once, a *PathError each.
func NewCutter(paths []string) (*Cutter, error) {
	c := &Cutter{root: &node{}, paths: slices.Clone(paths)}
	var errs []error
	for _, path := range paths {
		segments, err := parsePath(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.root.add(segments)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return c, nil
}

// With is a Cutter that cuts paths too; c is unchanged, and may be nil.
func (c *Cutter) With(paths ...string) (*Cutter, error) {
	return NewCutter(append(c.Paths(), paths...))
}

// Paths are the paths as they were given.
func (c *Cutter) Paths() []string {
	if c == nil {
		return nil
	}
	return slices.Clone(c.paths)
}

func (n *node) add(segments []segment) {
	for _, s := range segments {
		n = n.grow(s)
	}
	n.cut = true
}

func (n *node) grow(s segment) *node {
	if s.each {
		if n.each == nil {
			n.each = &node{}
		}
		return n.each
	}
	if child := n.member([]byte(s.name)); child != nil {
		return child
	}
	child := &node{}
	n.members = append(n.members, edge{s.name, child})
	return child
}

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
	return nil
}

// segment is one step of a path.
type segment struct {
	name string
	each bool
}

func parsePath(path string) ([]segment, error) {
	fail := func(at int, format string, args ...any) ([]segment, error) {
		return nil, &PathError{Path: path, Column: at + 1, Msg: fmt.Sprintf(format, args...)}
	}
	if !utf8.ValidString(path) {
		return fail(0, "not valid UTF-8")
	}
	var segments []segment
	for i := 0; i < len(path) || len(segments) == 0; {
		if len(segments) == maxSegments {
			return fail(i, "more than %d names", maxSegments)
		}
		if i < len(path) && path[i] == '[' {
			s, end, msg := parseBracket(path, i)
			if msg != "" {
				return fail(end, "%s", msg)
			}
			if s.each && len(segments) == 0 {
				return fail(i, "an object is not an array: a path starts with a name")
			}
			segments, i = append(segments, s), end
			continue
		}
		if len(segments) > 0 {
			if path[i] != '.' {
				return fail(i, "expected . or [ after ]")
			}
			i++
		}
		end := i
		for end < len(path) && plain(path[end]) {
			end++
		}
		switch {
		case end < len(path) && path[end] == '*':
			return fail(end, "every element of an array is written [*]")
		case end < len(path) && path[end] != '.' && path[end] != '[':
			return fail(end, `a name with this character is written ["…"]`)
		case end == i:
			return fail(i, "expected a name")
		}
		segments, i = append(segments, segment{name: path[i:end]}), end
	}
	if identifies(segments) {
		return fail(0, "identifies the object and cannot be cut")
	}
	return segments, nil
}

// parseBracket reads [*] or ["name"] at path[i]. Where msg is not empty, end is where it is wrong.
func parseBracket(path string, i int) (s segment, end int, msg string) {
	rest := path[i+1:]
	switch {
	case strings.HasPrefix(rest, "*]"):
		return segment{each: true}, i + 3, ""
	case strings.HasPrefix(rest, `"`):
		end = skipString([]byte(path), i+2)
		if end < 0 {
			if end = ^end; end == len(path) {
				return s, end, `expected "]`
			}
			return s, end, "not part of a JSON string"
		}
		if !strings.HasPrefix(path[end:], "]") {
			return s, end, "expected ]"
		}
		return segment{name: string(AppendUnescaped(nil, []byte(path[i+2:end-1])))}, end + 1, ""
	default:
		return s, i + 1, `expected [*] or ["name"]`
	}
}

// plain tells whether a name may hold c without being quoted.
func plain(c byte) bool {
	return c > ' ' && c != 0x7f && !strings.ContainsRune(`.[]*"'`, rune(c))
}

func identifies(segments []segment) bool {
	if len(segments) == 1 {
		return slices.Contains([]string{"kind", "apiVersion", "metadata"}, segments[0].name)
	}
	return len(segments) == 2 && segments[0].name == "metadata" && !segments[1].each &&
		slices.Contains([]string{"name", "namespace", "uid", "resourceVersion"}, segments[1].name)
}
