package encode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	errSyntax   = errors.New("malformed JSON")
	errEnd      = errors.New("unexpected end of JSON")
	errTrailing = errors.New("data after the JSON value")
)

func skipSpace(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\n' || doc[i] == '\t' || doc[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at doc[i].
func skipString(doc []byte, i int) (int, error) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for end := i + 1; end+8 <= len(doc) && end < i+32; end += 8 { // most strings are too short for IndexByte
		x := binary.LittleEndian.Uint64(doc[end:]) ^ '"'*ones
		if zeros := (x - ones) & ^x & tops; zeros != 0 { // the lowest bit marks the first byte of x that is zero
			if end += bits.TrailingZeros64(zeros) / 8; doc[end-1] != '\\' {
				return end + 1, nil
			}
			break
		}
	}
	for from := i + 1; ; {
		n := bytes.IndexByte(doc[from:], '"')
		if n < 0 {
			return 0, errEnd
		}
		// After an odd number of backslashes the quote is part of the string.
		end := from + n
		slashes := end
		for slashes > i+1 && doc[slashes-1] == '\\' {
			slashes--
		}
		if (end-slashes)%2 == 0 {
			return end + 1, nil
		}
		from = end + 1
	}
}

// skipValue returns the index after the value that begins at doc[i]. It counts brackets instead of recursing, so that no
// depth overflows the stack.
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
	for depth := 0; i < len(doc); {
		switch doc[i] {
		case '"':
			end, err := skipString(doc, i)
			if err != nil {
				return 0, err
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
		i++
	}
	return 0, errEnd
}

// inScalar reports whether numbers, true, false and null may contain c.
func inScalar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'u' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// sameScalar reports whether two values are known to be equal: equal bytes, or strings that differ only in their escapes.
func sameScalar(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if a[0] != '"' || b[0] != '"' {
		return false
	}
	a, b = a[1:len(a)-1], b[1:len(b)-1]
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return false
	}
	for len(a) > 0 && len(b) > 0 {
		ra, na := nextRune(a)
		rb, nb := nextRune(b)
		// Half a surrogate pair has no meaning, so two of them are not known to be equal.
		if ra != rb || utf16.IsSurrogate(ra) {
			return false
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) == len(b)
}

// nextRune returns the first character of the inside of a string, escaped or not, and its length in bytes. Half a surrogate
// pair is returned unchanged.
func nextRune(s []byte) (r rune, size int) {
	if s[0] != '\\' || len(s) < 2 {
		return utf8.DecodeRune(s)
	}
	switch s[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = hex4(s[2:])
		if r < 0 {
			return utf8.RuneError, 2
		}
		if utf16.IsSurrogate(r) && len(s) >= 8 && s[6] == '\\' && s[7] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(s[8:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return r, 6
	}
	return rune(s[1]), 2
}

// hex4 reads four hexadecimal digits; it returns -1 if there are not four.
func hex4(s []byte) rune {
	if len(s) < 4 {
		return -1
	}
	var r rune
	for _, c := range s[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unescape returns the inside of a string without escapes: raw itself if it has none. Half a surrogate pair becomes U+FFFD,
// as in encoding/json.
func unescape(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		r, n := nextRune(raw)
		out = utf8.AppendRune(out, r)
		raw = raw[n:]
	}
	return out
}

// appendSegment appends one step of a JSON pointer (RFC 6901), escaped for a JSON string.
func appendSegment(dst []byte, s *segment) []byte {
	if s.key == nil {
		return strconv.AppendInt(dst, int64(s.index), 10)
	}
	if bytes.IndexByte(s.key, '\\') < 0 {
		return appendPointer(dst, s.key)
	}
	// An escape may stand for "~" or "/": first unescape, then apply both escapes.
	for _, c := range appendPointer(nil, unescape(s.key)) {
		dst = appendQuotedByte(dst, c)
	}
	return dst
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

// appendQuotedByte appends one byte of a JSON string.
func appendQuotedByte(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c < ' ':
		return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
	return append(dst, c)
}
