package filter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
)

// comparison tells whether two objects are the same but for what paths name. It is immutable.
//
// An object that holds nothing but what they name is as if it were not there: the first annotation of an object brings
// metadata.annotations with it, and the last one takes them along.
type comparison struct {
	paths  []string
	mask   *object.Mask
	around []surrounding
}

// surrounding is an object around what a path names.
type surrounding struct {
	path *object.Path
	// inside compares it with {}; nil: whatever it holds is named.
	inside *comparison
}

// pathError says which of several paths is wrong.
type pathError struct {
	index int
	err   error
}

func (e *pathError) Error() string {
	var wrong *object.PathError
	if errors.As(e.err, &wrong) {
		return fmt.Sprintf("path %q: at its character %d: %s", wrong.Path, wrong.Column, wrong.Msg)
	}
	return e.err.Error()
}

// newComparison compiles paths. An error is a *pathError.
func newComparison(paths []string) (*comparison, error) {
	for i, path := range paths {
		if _, err := object.NewPath(path); err != nil {
			return nil, &pathError{i, err}
		}
	}
	mask, err := object.NewMask(paths...)
	if err != nil {
		return nil, err
	}
	c := &comparison{paths: paths, mask: mask}
	inside := map[string][]string{} // what of it is named
	var order []string
	for _, path := range paths {
		steps := stepsOf(path)
		for _, s := range steps[:len(steps)-1] {
			rest := strings.TrimPrefix(path[s.end:], ".")
			if s.each || strings.HasPrefix(rest, "[*]") && rest != "[*]" {
				break // of elements there is no such thing
			}
			parent := path[:s.end]
			if parent == "metadata" {
				continue // is always there
			}
			if _, ok := inside[parent]; !ok {
				order = append(order, parent)
			}
			inside[parent] = append(inside[parent], rest)
		}
	}
	for _, parent := range order {
		s := surrounding{}
		if s.path, err = object.NewPath(parent); err != nil {
			return nil, err
		}
		all := false
		for _, rest := range inside[parent] {
			all = all || rest == "[*]"
		}
		if !all {
			if s.inside, err = newComparison(inside[parent]); err != nil {
				return nil, err
			}
		}
		c.around = append(c.around, s)
	}
	return c, nil
}

// same compares two objects in JSON.
func (c *comparison) same(a, b []byte) (bool, error) {
	same, err := object.SameBut(a, b, c.mask)
	if err != nil || same {
		return same, damaged(err)
	}
	var more []string
	for i := range c.around {
		s := &c.around[i]
		blank, err := s.blank(a, b)
		if err != nil {
			return false, err
		}
		if blank {
			more = append(more, s.path.String())
		}
	}
	if len(more) == 0 {
		return false, nil
	}
	mask, err := object.NewMask(append(more, c.paths...)...)
	if err != nil {
		return false, err
	}
	same, err = object.SameBut(a, b, mask)
	return same, damaged(err)
}

// blank tells whether one of two objects has the surrounding, with nothing in it but what is named, and the other has not.
func (s *surrounding) blank(a, b []byte) (bool, error) {
	x, err := object.Locate(a, s.path)
	if err != nil {
		return false, damaged(err)
	}
	y, err := object.Locate(b, s.path)
	if err != nil || (x == nil) == (y == nil) {
		return false, damaged(err)
	}
	if x == nil {
		x = y
	}
	if kind(x) != '{' || s.inside == nil {
		return kind(x) == '{', nil
	}
	return s.inside.same([]byte("{}"), x)
}

// kind is the first byte of a value, 0 where there is none.
func kind(raw []byte) byte {
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// step is one step of a path.
type step struct {
	name string
	each bool // of an array's elements, or an object's members
	end  int  // where it ends in the path
}

// stepsOf takes a path apart that is known to be right.
func stepsOf(path string) []step {
	var steps []step
	for i := 0; i < len(path); {
		var s step
		switch {
		case strings.HasPrefix(path[i:], "[*]"):
			s.each, i = true, i+len("[*]")
		case path[i] == '[':
			end := i + len(`["`)
			for path[end] != '"' {
				if path[end] == '\\' {
					end++
				}
				end++
			}
			s.name, _ = object.Text([]byte(path[i+1 : end+1]))
			i = end + len(`"]`)
		default:
			if path[i] == '.' {
				i++
			}
			end := strings.IndexAny(path[i:], ".[")
			if end < 0 {
				end = len(path) - i
			}
			s.name, i = path[i:i+end], i+end
		}
		s.end = i
		steps = append(steps, s)
	}
	return steps
}
