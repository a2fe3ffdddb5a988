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

// AppendUnescaped appends the text of a JSON string with the inside b, which must have been checked. As encoding/json does,
// it writes U+FFFD for each byte of invalid UTF-8 and for each half of a broken surrogate pair.
func AppendUnescaped(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c == '\\' && b[i+1] == 'u':
			r := hex4(b[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				low := rune(utf8.RuneError)
				if i+6 <= len(b) && b[i] == '\\' && b[i+1] == 'u' {
					low = hex4(b[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
		case c == '\\':
			dst = append(dst, unescape(b[i+1]))
			i += 2
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, size := utf8.DecodeRune(b[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
		}
	}
	return dst
}

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

func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c | 0x20 - 'a' + 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

// AppendString appends text as a JSON string.
func AppendString[T []byte | string](dst []byte, text T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range []byte(text) {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
