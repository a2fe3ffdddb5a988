package filter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// comparison compares two objects except for the values at paths. It is immutable.
//
// An object that contains only values at the paths counts as absent: the first annotation of an
// object adds metadata.annotations too, and removing the last annotation removes
// metadata.annotations.
type comparison struct {
	paths  []string
	mask   *object.Mask
	around []surrounding
}

// surrounding is an object that contains values at the paths.
type surrounding struct {
	path *object.Path
	// inside compares it with {}; nil: the paths cover all of its content.
	inside *comparison
}

// pathError names the invalid one of several paths.
type pathError struct {
	index int
	err   error
}

func (e *pathError) Error() string {
	var wrong *object.PathError
	if errors.As(e.err, &wrong) {
		return fmt.Sprintf("path %q: character %d: %s", wrong.Path, wrong.Column, wrong.Msg)
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
	inside := map[string][]string{} // the paths relative to the parent
	var order []string
	for _, path := range paths {
		segments := segmentsOf(path)
		for _, s := range segments[:len(segments)-1] {
			rest := strings.TrimPrefix(path[s.end:], ".")
			if s.each || strings.HasPrefix(rest, "[*]") && rest != "[*]" {
				break // this does not apply to elements
			}
			parent := path[:s.end]
			if parent == "metadata" {
				continue // always exists
			}
			if _, ok := inside[parent]; !ok {
				order = append(order, parent)
			}
			inside[parent] = append(inside[parent], rest)
		}
	}
	for _, parent := range order {
		s := surrounding{}
		s.path, err = object.NewPath(parent)
		if err != nil {
			return nil, err
		}
		all := false
		for _, rest := range inside[parent] {
			all = all || rest == "[*]"
		}
		if !all {
			s.inside, err = newComparison(inside[parent])
			if err != nil {
				return nil, err
			}
		}
		c.around = append(c.around, s)
	}
	return c, nil
}

// isSame compares two JSON objects.
func (c *comparison) isSame(a, b []byte) (bool, error) {
	same, err := object.SameBut(a, b, c.mask)
	if err != nil || same {
		return same, damaged(err)
	}
	var more []string
	for i := range c.around {
		s := &c.around[i]
		blank, err := s.isBlank(a, b)
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

// isBlank reports whether exactly one of two objects has the surrounding, with no content except
// values at the paths.
func (s *surrounding) isBlank(a, b []byte) (bool, error) {
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
	return s.inside.isSame([]byte("{}"), x)
}

// kind returns the first byte of a value, 0 if there is none.
func kind(raw []byte) byte {
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// segment is a part of a path: one name, or each element or member.
type segment struct {
	name string
	each bool // any element of an array, or any member of an object
	end  int  // its end in the path
}

// segmentsOf splits a valid path.
func segmentsOf(path string) []segment {
	var segments []segment
	for i := 0; i < len(path); {
		var s segment
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
			s.name, _ = jsonscan.Text([]byte(path[i+1 : end+1]))
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
		segments = append(segments, s)
	}
	return segments
}
