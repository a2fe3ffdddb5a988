package filter

import "strings"

// namespaceVariable is what the variable namespace is called within CEL, for which that word is reserved. It is as long, so that
// errors tell the right column.
const namespaceVariable = "__nmspc__"

// withNamespace makes each namespace in an expression that is a variable what CEL takes for one. Strings, comments, names in
// backticks, and what follows a dot stay as they are.
func withNamespace(text string) string {
	if !strings.Contains(text, "namespace") {
		return text
	}
	b := []byte(text)
	dot := false // behind a dot, or a dot and a question mark: a member's name
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"' || c == '\'':
			i = stringEnd(text, i, false)
			dot = false
		case c == '`': // a name that no word can be, as a label's is: nothing is escaped within
			i, dot = i+1, false
			for i < len(b) && b[i] != '`' {
				i++
			}
			i++
		case c == '/' && strings.HasPrefix(text[i:], "//"):
			for i < len(b) && b[i] != '\n' {
				i++
			}
		case letter(c):
			end := i
			for end < len(b) && (letter(b[end]) || b[end] >= '0' && b[end] <= '9') {
				end++
			}
			word := text[i:end]
			switch {
			case end < len(b) && (b[end] == '"' || b[end] == '\'') && prefixes(word):
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

func letter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// prefixes tells whether a string may begin with word before its quote.
func prefixes(word string) bool {
	switch strings.ToLower(word) {
	case "r", "b", "rb", "br":
		return true
	}
	return false
}

// stringEnd is where the string ends that begins with the quote at text[i], or the end of text.
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
