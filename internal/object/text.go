package object

import (
	"bytes"
	"encoding/binary"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// escaped reports whether the inside of a JSON string differs from its text.
func escaped(b []byte) bool {
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

// appendString appends text as a JSON string.
func appendString[T []byte | string](dst []byte, text T) []byte {
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

// unixTime returns an RFC 3339 time in seconds since 1970, 0 if text is not such a time.
func unixTime(text []byte) int64 {
	// The only form that the API server writes for metav1.Time: 2026-11-20T15:00:00Z
	//                                                           0123456789012345678 9
	const form = "0000-00-00T00:00:00Z"
	if len(text) == len(form) {
		usual := true
		for i, c := range text {
			if d := c - '0'; form[i] == '0' && d > 9 || form[i] != '0' && c != form[i] {
				usual = false
				break
			}
		}
		if usual {
			two := func(i int) int { return int(text[i]-'0')*10 + int(text[i+1]-'0') }
			year, month, day := two(0)*100+two(2), two(5), two(8)
			hour, minute, second := two(11), two(14), two(17)
			if month >= 1 && month <= 12 && day >= 1 && day <= 28 && hour < 24 && minute < 60 && second < 60 {
				return time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC).Unix()
			}
		}
	}
	if len(text) == 0 {
		return 0
	}
	var t time.Time
	if t.UnmarshalText(text) != nil {
		return 0
	}
	return t.Unix()
}
