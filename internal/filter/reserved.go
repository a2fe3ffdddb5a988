package filter

import "strings"

// namespaceVariable replaces the variable namespace in CEL, where that word is reserved. It has the
// same length, so that errors give the right column.
const namespaceVariable = "__nmspc__"

// withNamespace replaces the variable namespace in an expression by namespaceVariable. It does not
// change strings, comments, names in backticks, and members after a dot.
func withNamespace(text string) string {
	if !strings.Contains(text, "namespace") {
		return text
	}
	b := []byte(text)
	dot := false // after a dot, or a dot and a question mark: a member's name
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"' || c == '\'':
			i = stringEnd(text, i, false)
			dot = false
		case c == '`': // a quoted name, such as a label's; it has no escapes
			i, dot = i+1, false
			for i < len(b) && b[i] != '`' {
				i++
			}
			i++
		case c == '/' && strings.HasPrefix(text[i:], "//"):
			for i < len(b) && b[i] != '\n' {
				i++
			}
		case isLetter(c):
			end := i
			for end < len(b) && (isLetter(b[end]) || b[end] >= '0' && b[end] <= '9') {
				end++
			}
			word := text[i:end]
			switch {
			case end < len(b) && (b[end] == '"' || b[end] == '\'') && isStringPrefix(word):
				end = stringEnd(text, end, strings.ContainsAny(word, "rR"))
			case word == "namespace" && !dot:
				copy(b[i:], namespaceVariable)
			}
			i, dot = end, false
		default:
			if c == '.' {
				dot = true
			} else if c != '?' && c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f' {
				dot = false
			}
			i++
		}
	}
	return string(b)
}

func isLetter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// isStringPrefix reports whether word is a valid prefix of a string literal.
func isStringPrefix(word string) bool {
	switch strings.ToLower(word) {
	case "r", "b", "rb", "br":
		return true
	}
	return false
}

// stringEnd returns the end of the string whose quote is at text[i], or the end of text.
func stringEnd(text string, i int, raw bool) int {
	quote := text[i : i+1]
	if strings.HasPrefix(text[i:], strings.Repeat(quote, 3)) {
		quote = text[i : i+3]
	}
	for i += len(quote); i < len(text); i++ {
		switch {
		case text[i] == '\\' && !raw:
			i++
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote)
		}
	}
	return len(text)
}
