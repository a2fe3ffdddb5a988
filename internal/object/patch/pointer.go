package patch

import (
	"bytes"
	"strconv"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// appendSegment appends one segment of a JSON pointer (RFC 6901), escaped for a JSON string.
func appendSegment(dst []byte, s *segment) []byte {
	if s.key == nil {
		return strconv.AppendInt(dst, int64(s.index), 10)
	}
	if bytes.IndexByte(s.key, '\\') < 0 {
		return appendPointer(dst, s.key)
	}
	// An escape may stand for "~" or "/": first unescape, then apply both escapes.
	return jsonscan.AppendInside(dst, appendPointer(nil, jsonscan.Unescape(s.key)))
}

func appendPointer(dst, key []byte) []byte {
	for n, c := range key {
		if c == '~' || c == '/' {
			dst = append(append(dst, key[:n]...), '~', '0'+c&1)
			return appendPointer(dst, key[n+1:])
		}
	}
	return append(dst, key...)
}
