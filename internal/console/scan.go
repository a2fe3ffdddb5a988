package console

import (
	"bytes"
	"errors"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

var (
	errSyntax = errors.New("malformed JSON")
	errEnd    = errors.New("unexpected end of JSON")
)

// member is a member of an object, or, without a key, an element of an array.
type member struct {
	key   []byte // as written between the quotes
	value []byte
}

func skipSpace(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\n' || doc[i] == '\t' || doc[i] == '\r') {
		i++
	}
	return i
}

// trim returns the value without surrounding space.
func trim(doc []byte) []byte { return bytes.Trim(doc, " \n\t\r") }

// skipString returns the index after the string that begins at doc[i].
func skipString(doc []byte, i int) (int, error) {
	for from := i + 1; ; {
		n := bytes.IndexByte(doc[from:], '"')
		if n < 0 {
			return 0, errEnd
		}
		end := from + n
		slashes := end
		for slashes > from && doc[slashes-1] == '\\' {
			slashes--
		}
		if (end-slashes)%2 == 0 { // after an odd number of backslashes, the quote is part of the string
			return end + 1, nil
		}
		from = end + 1
	}
}

// skipValue returns the index after the value that begins at doc[i]. It counts brackets instead of recursing, so that no
// depth overflows the stack. It does not check the skipped bytes: the events' parser has done that.
func skipValue(doc []byte, i int) (int, error) {
	if i >= len(doc) {
		return 0, errEnd
	}
	switch doc[i] {
	case '"':
		return skipString(doc, i)
	case '{', '[':
	default:
		start := i
		for i < len(doc) && inScalar(doc[i]) {
			i++
		}
		if i == start {
			return 0, errSyntax
		}
		return i, nil
	}
	for depth := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			end, err := skipString(doc, i)
			if err != nil {
				return 0, err
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
	}
	return 0, errEnd
}

// inScalar reports whether numbers, true, false and null can contain c.
func inScalar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'u' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// appendMembers appends the members of object doc, or the elements of array doc. like are those of the document to compare
// with, or nil: if the one at the same place has the same bytes, its end is known without a scan.
func appendMembers(ms []member, doc []byte, like []member) ([]member, error) {
	if len(doc) < 2 {
		return ms, errEnd
	}
	isObject, closing := doc[0] == '{', doc[0]+2 // in ASCII, '}' and ']' are two after '{' and '['
	if !isObject && doc[0] != '[' {
		return ms, errSyntax
	}
	for i, n := 1, 0; ; n++ {
		i = skipSpace(doc, i)
		if i < len(doc) && doc[i] == closing {
			return ms, nil
		}
		if n > 0 {
			if i >= len(doc) || doc[i] != ',' {
				return ms, errSyntax
			}
			i = skipSpace(doc, i+1)
		}
		var m member
		if isObject {
			if i >= len(doc) || doc[i] != '"' {
				return ms, errSyntax
			}
			end, err := skipString(doc, i)
			if err != nil {
				return ms, err
			}
			m.key = doc[i+1 : end-1]
			if i = skipSpace(doc, end); i >= len(doc) || doc[i] != ':' {
				return ms, errSyntax
			}
			i = skipSpace(doc, i+1)
		}
		end := 0
		if n < len(like) && bytes.HasPrefix(doc[i:], like[n].value) {
			if e := i + len(like[n].value); e < len(doc) && (doc[e] == ',' || doc[e] == closing) {
				end = e
			}
		}
		if end == 0 {
			var err error
			if end, err = skipValue(doc, i); err != nil {
				return ms, err
			}
		}
		m.value = doc[i:end]
		ms = append(ms, m)
		i = end
	}
}

// lookup returns the value of a member of an object, nil if it has none, or if doc is not an object. key has no escapes.
// The last of several members with the same key counts, as in encoding/json.
func lookup(doc []byte, key string) []byte {
	if len(doc) < 2 || doc[0] != '{' {
		return nil
	}
	var buf [16]member
	ms, err := appendMembers(buf[:0], doc, nil)
	if err != nil {
		return nil
	}
	for k := len(ms) - 1; k >= 0; k-- {
		if string(ms[k].key) == key || bytes.IndexByte(ms[k].key, '\\') >= 0 && string(unescape(ms[k].key)) == key {
			return ms[k].value
		}
	}
	return nil
}

// sameScalar reports whether two values have equal bytes, or are strings that differ only in their escapes. It compares
// numbers as written.
func sameScalar(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return isString(a) && isString(b) && (bytes.IndexByte(a, '\\') >= 0 || bytes.IndexByte(b, '\\') >= 0) &&
		bytes.Equal(unquote(a), unquote(b))
}

func isString(value []byte) bool { return len(value) >= 2 && value[0] == '"' }

func isContainer(value []byte) bool {
	return len(value) >= 2 && (value[0] == '{' || value[0] == '[')
}

// unquote returns the text of a string, and any other scalar as written.
func unquote(value []byte) []byte {
	if isString(value) {
		return unescape(value[1 : len(value)-1])
	}
	return value
}

// unescape returns the text between the quotes of a string without its escapes: raw itself if there are none.
func unescape(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return jsonscan.AppendUnescaped(nil, raw)
}
