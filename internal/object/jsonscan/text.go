package jsonscan

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// Escaped reports whether the inside of a JSON string differs from its text.
func Escaped(b []byte) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	odd := uint64(0) // the highest bit of each byte is set if it is a backslash, or not ASCII
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		slash := x ^ ones*'\\'
		odd |= (slash-ones)&^slash | x
	}
	for ; i < len(b); i++ {
		if b[i] == '\\' || b[i] >= utf8.RuneSelf {
			odd = tops
		}
	}
	return odd&tops != 0 && (bytes.IndexByte(b, '\\') >= 0 || !utf8.Valid(b))
}

// AppendUnescaped appends the text of a JSON string with the inside b. As encoding/json does, it
// writes U+FFFD for each byte of invalid UTF-8 and for each half of a broken surrogate pair.
func AppendUnescaped(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c < utf8.RuneSelf && c != '\\':
			dst = append(dst, c)
			i++
			continue
		case c == '\\' && i+1 < len(b) && b[i+1] < utf8.RuneSelf && b[i+1] != 'u':
			dst = append(dst, unescape(b[i+1]))
			i += 2
			continue
		}
		r, size := nextRune(b[i:])
		dst = utf8.AppendRune(dst, r)
		i += size
	}
	return dst
}

// Unescape returns the text of a JSON string with the inside b: b itself if it has no escapes, even
// if it is not UTF-8.
func Unescape(b []byte) []byte {
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	return AppendUnescaped(make([]byte, 0, len(b)), b)
}

// nextRune returns the first character of the inside of a string, escaped or not, and its length in
// bytes. Half a surrogate pair is returned unchanged, and damaged escapes as U+FFFD.
func nextRune(b []byte) (r rune, size int) {
	if b[0] != '\\' || len(b) < 2 {
		return utf8.DecodeRune(b)
	}
	if b[1] != 'u' {
		return rune(unescape(b[1])), 2
	}
	r = hex4(b[2:])
	if r < 0 {
		return utf8.RuneError, 2
	}
	if utf16.IsSurrogate(r) && len(b) >= 8 && b[6] == '\\' && b[7] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(b[8:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

// unescape returns what a backslash and c stand for.
func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c // a quote, a backslash, a slash
}

// hex4 reads four hexadecimal digits; it returns -1 if there are not four.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
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

// SameScalar reports whether two scalars are known to be equal: equal bytes, or strings that differ
// only in their escapes. Numbers are compared as they are written. Half a surrogate pair has no
// meaning, so two of them are not known to be equal.
func SameScalar(a, b []byte) bool {
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
		if ra != rb || utf16.IsSurrogate(ra) {
			return false
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) == len(b)
}

// AppendString appends text as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	dst = AppendInside(dst, text)
	return append(dst, '"')
}

// AppendInside appends what AppendString writes between the quotes.
func AppendInside[T string | []byte](dst []byte, text T) []byte {
	plain := Plain(text)
	dst = append(dst, text[:plain]...)
	if plain == len(text) {
		return dst
	}
	const hex = "0123456789abcdef"
	for _, r := range string(text[plain:]) {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// Plain returns the length of the prefix of s that is ASCII without control characters, quotes and
// backslashes: it needs no escapes. It may stop early, unless all of s is plain.
func Plain[T string | []byte](s T) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, slash := x^ones*'"', x^ones*'\\'
		if (x|(x+ones)|(x-ones*' ')|(quote-ones)|(slash-ones))&tops != 0 { // x + ones detects a DEL
			return i
		}
	}
	for i < len(s) && ' ' <= s[i] && s[i] <= '~' && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}
