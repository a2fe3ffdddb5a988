package console

import (
	"bytes"
	"errors"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// errSyntax is for JSON that its reader should have refused.
var errSyntax = errors.New("malformed JSON")

// member is a member of an object, or, without a key, an element of an array.
type member struct {
	key   []byte // as written between the quotes
	value []byte
}

// trim returns the value without surrounding space.
func trim(doc []byte) []byte { return bytes.Trim(doc, " \n\t\r") }

// appendMembers appends the members of object doc, or the elements of array doc. like are those of
// the document to compare with, or nil: if the one at the same place has the same bytes, its end is
// known without a scan.
func appendMembers(ms []member, doc []byte, like []member) ([]member, error) {
	if len(doc) < 2 {
		return ms, jsonscan.ErrTruncated
	}
	isObject, closing := doc[0] == '{', doc[0]+2 // in ASCII, '}' and ']' are two after '{' and '['
	if !isObject && doc[0] != '[' {
		return ms, errSyntax
	}
	for i, n := 1, 0; ; n++ {
		i = jsonscan.SkipSpace(doc, i)
		if i < len(doc) && doc[i] == closing {
			return ms, nil
		}
		if n > 0 {
			if i >= len(doc) || doc[i] != ',' {
				return ms, errSyntax
			}
			i = jsonscan.SkipSpace(doc, i+1)
		}
		var m member
		if isObject {
			if i >= len(doc) || doc[i] != '"' {
				return ms, errSyntax
			}
			end := jsonscan.StringEnd(doc, i)
			if end < 0 {
				return ms, jsonscan.ErrorAt(doc, end)
			}
			m.key = doc[i+1 : end-1]
			i = jsonscan.SkipSpace(doc, end)
			if i >= len(doc) || doc[i] != ':' {
				return ms, errSyntax
			}
			i = jsonscan.SkipSpace(doc, i+1)
		}
		end := 0
		if n < len(like) && bytes.HasPrefix(doc[i:], like[n].value) {
			if e := i + len(like[n].value); e < len(doc) && (doc[e] == ',' || doc[e] == closing) {
				end = e
			}
		}
		if end == 0 {
			end = jsonscan.ValueEnd(doc, i)
			if end < 0 {
				return ms, jsonscan.ErrorAt(doc, end)
			}
		}
		m.value = doc[i:end]
		ms = append(ms, m)
		i = end
	}
}

// lookup returns the value of a member of an object, nil if it has none, or if doc is not an
// object. key has no escapes. The last of several members with the same key counts, as in
// encoding/json.
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
		if string(ms[k].key) == key ||
			bytes.IndexByte(ms[k].key, '\\') >= 0 && string(jsonscan.Unescape(ms[k].key)) == key {
			return ms[k].value
		}
	}
	return nil
}

func isString(value []byte) bool { return len(value) >= 2 && value[0] == '"' }

func isContainer(value []byte) bool {
	return len(value) >= 2 && (value[0] == '{' || value[0] == '[')
}

// unquote returns the text of a string, and any other scalar as written.
func unquote(value []byte) []byte {
	if isString(value) {
		return jsonscan.Unescape(value[1 : len(value)-1])
	}
	return value
}
