package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// printable escapes unprintable characters as in Go's strings, so that text can neither move the cursor nor imitate another
// line.
func printable(text string) string {
	dst := make([]byte, 0, len(text))
	for i, size := 0, 0; i < len(text); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, `\x`...)
			dst = append(dst, "0123456789abcdef"[text[i]>>4], "0123456789abcdef"[text[i]&15])
		case strconv.IsPrint(r):
			dst = append(dst, text[i:i+size]...)
		default:
			q := strconv.QuoteRune(r)
			dst = append(dst, q[1:len(q)-1]...)
		}
	}
	return string(dst)
}

// appendWord appends text as one word, quoted if necessary.
func appendWord(dst []byte, text string) []byte {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool {
		return r == ' ' || r == '"' || r == '=' || r == utf8.RuneError || !strconv.IsPrint(r)
	}) {
		return strconv.AppendQuote(dst, text)
	}
	return append(dst, text...)
}

// Count formats n with separated thousands: 12,345.
func Count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
