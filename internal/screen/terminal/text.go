package terminal

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// harmless escapes the characters of text that a terminal interprets or displays out of place.
// These are control characters, except line ends and tabs, and format characters such as reversals
// of the direction. styles permits the sequences of Output.Append. The escapes are those of JSON,
// so that JSON keeps its meaning. A byte that is not UTF-8 becomes U+FFFD, as in decoders of JSON.
func harmless(text []byte, styles bool) []byte {
	var dst []byte
	from := 0
	for i := 0; i < len(text); {
		if c := text[i]; ' ' <= c && c <= '~' || c == '\n' || c == '\t' {
			i++
			continue
		}
		if n := styleLen(text[i:]); styles && n > 0 {
			i += n
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if !unicode.IsPrint(r) || r == utf8.RuneError && size == 1 {
			dst = appendEscape(append(dst, text[from:i]...), r)
			from = i + size
		}
		i += size
	}
	if from == 0 {
		return text
	}
	return append(dst, text[from:]...)
}

// appendEscape appends a character as an escape of JSON.
func appendEscape(dst []byte, r rune) []byte {
	if r == '\r' {
		return append(dst, `\r`...)
	}
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(dst, `\u%04x`, r)
}

// styleLen returns the length of the style with which text begins, 0 if it begins with none. Hidden
// text is no style of Output.Append.
func styleLen(text []byte) int {
	const longest = len("1;31")
	params, ok := bytes.CutPrefix(text, []byte("\x1b["))
	end := bytes.IndexByte(params[:min(len(params), longest+1)], 'm')
	if !ok || end < 1 {
		return 0
	}
	for param := range bytes.SplitSeq(params[:end], []byte(";")) {
		switch Style(param) {
		case "0", Bold, Dim, Red, Green, Yellow, Blue, Cyan:
		case Plain: // no parameter at all
			return 0
		default:
			return 0
		}
	}
	return len("\x1b[") + end + 1
}

// printable escapes unprintable characters as in Go's strings, so that text can neither move the
// cursor nor imitate another line.
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
