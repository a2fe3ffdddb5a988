package console

import (
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
)

// ellipsis replaces omitted text.
const ellipsis = "…"

// appendClean appends text, but escapes everything that a terminal would interpret or display out
// of place: control and format characters (escape sequences, line ends, reversals of the
// direction). A byte that is not UTF-8 is written like \xff.
func appendClean[T string | []byte](dst []byte, text T) []byte {
	plain := 0
	for plain < len(text) && ' ' <= text[plain] && text[plain] <= '~' {
		plain++
	}
	dst = append(dst, text[:plain]...)
	if plain == len(text) {
		return dst
	}
	rest := string(text[plain:])
	for i, r := range rest {
		if r == utf8.RuneError && !isReplacement(rest[i:]) {
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'x', hex[rest[i]>>4], hex[rest[i]&15])
			continue
		}
		dst = appendRune(dst, r)
	}
	return dst
}

// isReplacement reports whether s begins with a written U+FFFD, not with an invalid byte.
func isReplacement(s string) bool {
	_, size := utf8.DecodeRuneInString(s)
	return size > 1
}

// appendRune appends a character, escaped if it is not printable. The escapes are those of JSON and
// of YAML's double quotes.
func appendRune(dst []byte, r rune) []byte {
	switch {
	case r == '\n':
		return append(dst, '\\', 'n')
	case r == '\t':
		return append(dst, '\\', 't')
	case r == '\r':
		return append(dst, '\\', 'r')
	case unicode.IsPrint(r):
		return utf8.AppendRune(dst, r)
	}
	const hex = "0123456789abcdef"
	kind, digits := byte('u'), 4
	if r > 0xffff {
		kind, digits = 'U', 8
	}
	dst = append(dst, '\\', kind)
	for digits--; digits >= 0; digits-- {
		dst = append(dst, hex[r>>(4*digits)&15])
	}
	return dst
}

// clean returns text as appendClean writes it.
func clean(text string) string { return string(appendClean(nil, text)) }

// width returns the number of columns of text, which must have no control characters.
func width[T string | []byte](text T) int {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return displaywidth.String(string(text))
		}
	}
	return len(text)
}

// cut shortens text to columns columns, with an ellipsis in the last one if it is too long. columns
// ≤ 0: no limit.
func cut(text string, columns int) string {
	if columns <= 0 || len(text) <= columns || width(text) <= columns {
		return text
	}
	return displaywidth.TruncateString(text, columns, ellipsis)
}

// appendCount appends n with a comma before each three digits: 1,234.
func appendCount(dst []byte, n int) []byte {
	if n < 1000 && n > -1000 {
		return strconv.AppendInt(dst, int64(n), 10)
	}
	dst = append(appendCount(dst, n/1000), ',')
	rest := max(n%1000, -(n % 1000))
	return append(dst, byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}

// withheld returns the remark that n versions of an object were withheld right before an event.
func withheld(n int) string {
	return strconv.Itoa(n) + plural(n, " version", " versions") + " withheld before this"
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
