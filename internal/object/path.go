package object

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// maxSegments bounds the length of a path, and with it the recursion of a Scanner.
const maxSegments = 64

// PathError is an error in a path.
type PathError struct {
	Path   string
	Column int // in bytes, from 1
	Msg    string
}

func (e *PathError) Error() string {
	return fmt.Sprintf("path %q: column %d: %s", e.Path, e.Column, e.Msg)
}

// segment is one name of a path, or each element of an array.
type segment struct {
	name string
	each bool
	// quoted is the name as documents have it, unless they spell it with \u; nil if the name has
	// other spellings.
	quoted []byte
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
				return fail(i, "a path starts with a name")
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
			return fail(end, "each element, or member, is written [*]")
		case end < len(path) && path[end] != '.' && path[end] != '[':
			return fail(end, `a name with this character is written ["…"]`)
		case end == i:
			return fail(i, "expected a name")
		}
		segments, i = append(segments, named(path[i:end])), end
	}
	return segments, nil
}

// named returns the segment of the member with that name.
func named(name string) segment {
	s := segment{name: name}
	for _, c := range name {
		if c < ' ' || c == '"' || c == '\\' || c == '/' || c == utf8.RuneError {
			return s
		}
	}
	s.quoted = jsonscan.AppendString(nil, name)
	return s
}

// parseBracket reads [*] or ["name"] at path[i]. If msg is not empty, end is the offset of the
// error.
func parseBracket(path string, i int) (s segment, end int, msg string) {
	rest := path[i+1:]
	switch {
	case strings.HasPrefix(rest, "*]"):
		return segment{each: true}, i + 3, ""
	case strings.HasPrefix(rest, `"`):
		end = jsonscan.SkipString([]byte(path), i+2)
		if end < 0 {
			end = ^end
			if end == len(path) {
				return s, end, `expected "]`
			}
			return s, end, "not part of a JSON string"
		}
		if !strings.HasPrefix(path[end:], "]") {
			return s, end, "expected ]"
		}
		return named(string(jsonscan.AppendUnescaped(nil, []byte(path[i+2:end-1])))), end + 1, ""
	default:
		return s, i + 1, `expected [*] or ["name"]`
	}
}

// plain reports whether a name may contain c without quotes.
func plain(c byte) bool {
	return c > ' ' && c != 0x7f && !strings.ContainsRune(`.[]*"'`, rune(c))
}

// CheckPath returns an error, a *PathError, if a path has a syntax error or cannot match in any
// object. An example is an unquoted name of a label or annotation that contains dots.
func CheckPath(path string) error {
	segments, err := parsePath(path)
	if err != nil {
		return err
	}
	return insideText(path, segments)
}

// MayLack reports whether a value could have been cut from a decoded object at a path: the object
// or list around the value is there, and the value is not. A path in the syntax of NewCutter is
// required.
func MayLack(o map[string]any, path string) (bool, error) {
	segments, err := parsePath(path)
	return err == nil && mayLack(o, segments), err
}

func mayLack(value any, path []segment) bool {
	s, last := path[0], len(path) == 1
	switch v := value.(type) {
	case map[string]any:
		if !s.each {
			below, has := v[s.name]
			return !has && last || has && !last && mayLack(below, path[1:])
		}
		for _, below := range v {
			if !last && mayLack(below, path[1:]) {
				return true
			}
		}
		return last && len(v) == 0
	case []any:
		for _, below := range v {
			if s.each && !last && mayLack(below, path[1:]) {
				return true
			}
		}
		return s.each && last && len(v) == 0
	}
	return false
}

// insideText rejects paths into labels and annotations, which are strings.
func insideText(path string, segments []segment) error {
	if len(segments) < 4 || segments[0].name != "metadata" ||
		segments[1].name != "labels" && segments[1].name != "annotations" {
		return nil
	}
	var names []string
	for _, s := range segments[2:] {
		if s.each {
			return &PathError{Path: path, Column: 1, Msg: "names nothing: " + segments[1].name + " are strings"}
		}
		names = append(names, s.name)
	}
	return &PathError{
		Path:   path,
		Column: 1,
		Msg: fmt.Sprintf("names nothing: a name with dots is written metadata.%s[%s]",
			segments[1].name, jsonscan.AppendString(nil, strings.Join(names, "."))),
	}
}

func identifies(segments []segment) bool {
	if len(segments) == 1 {
		return slices.Contains([]string{"kind", "apiVersion", "metadata"}, segments[0].name)
	}
	return len(segments) == 2 && segments[0].name == "metadata" &&
		(segments[1].each || slices.Contains([]string{"name", "namespace", "uid", "resourceVersion"}, segments[1].name))
}

// appendName appends one more name to a path, quoted if necessary.
func appendName(dst, name []byte) []byte {
	for _, c := range name {
		if !plain(c) {
			return append(jsonscan.AppendString(append(dst, '['), name), ']')
		}
	}
	if len(name) == 0 {
		return append(dst, `[""]`...)
	}
	if len(dst) > 0 {
		dst = append(dst, '.')
	}
	return append(dst, name...)
}
