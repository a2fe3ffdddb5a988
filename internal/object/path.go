package object

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxSegments bounds the length of a path, and with it the recursion of a Scanner.
const maxSegments = 64

// PathError says where a path is wrong.
type PathError struct {
	Path   string
	Column int // in bytes, from 1
	Msg    string
}

func (e *PathError) Error() string {
	return fmt.Sprintf("path %q: column %d: %s", e.Path, e.Column, e.Msg)
}

// segment is one step of a path.
type segment struct {
	name string
	each bool
	// quoted is the name as documents have it, unless they spell it with \u; nil: there are other ways yet.
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

// named is a step to the member of that name.
func named(name string) segment {
	s := segment{name: name}
	for _, c := range name {
		if c < ' ' || c == '"' || c == '\\' || c == '/' || c == utf8.RuneError {
			return s
		}
	}
	s.quoted = appendString(nil, name)
	return s
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
		return named(string(AppendUnescaped(nil, []byte(path[i+2:end-1])))), end + 1, ""
	default:
		return s, i + 1, `expected [*] or ["name"]`
	}
}

// plain tells whether a name may hold c without being quoted.
func plain(c byte) bool {
	return c > ' ' && c != 0x7f && !strings.ContainsRune(`.[]*"'`, rune(c))
}

// CheckPath finds fault with a path that is well written and names nothing in any object: a label's or an annotation's name with
// dots in it, and without quotes. Its error is a *PathError.
func CheckPath(path string) error {
	segments, err := parsePath(path)
	if err != nil {
		return err
	}
	return insideText(path, segments)
}

// insideText refuses paths into labels and annotations, which are texts.
func insideText(path string, segments []segment) error {
	if len(segments) < 4 || segments[0].name != "metadata" || segments[1].name != "labels" && segments[1].name != "annotations" {
		return nil
	}
	var names []string
	for _, s := range segments[2:] {
		if s.each {
			return &PathError{Path: path, Column: 1, Msg: "names nothing: " + segments[1].name + " are texts"}
		}
		names = append(names, s.name)
	}
	return &PathError{Path: path, Column: 1, Msg: fmt.Sprintf("names nothing: a name with dots in it is written metadata.%s[%s]",
		segments[1].name, appendString(nil, strings.Join(names, ".")))}
}

func identifies(segments []segment) bool {
	if len(segments) == 1 {
		return slices.Contains([]string{"kind", "apiVersion", "metadata"}, segments[0].name)
	}
	return len(segments) == 2 && segments[0].name == "metadata" &&
		(segments[1].each || slices.Contains([]string{"name", "namespace", "uid", "resourceVersion"}, segments[1].name))
}

// appendName appends one more name to a path, as a path is written.
func appendName(dst, name []byte) []byte {
	for _, c := range name {
		if !plain(c) {
			return append(appendString(append(dst, '['), name), ']')
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
