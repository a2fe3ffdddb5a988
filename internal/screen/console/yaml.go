package console

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// maxDepth limits the depth of comparisons and output. Deeper values are compared and shown as a
// whole, which bounds the stack.
const maxDepth = 100

// appendBlock appends a JSON value as lines of YAML, each indented, in the order of the document.
func appendBlock(dst, value []byte, indent, depth int) []byte {
	if !isContainer(value) {
		return append(appendScalar(appendSpaces(dst, indent), value, indent), '\n')
	}
	var buf [16]member
	ms, err := appendMembers(buf[:0], value, nil)
	if err != nil || len(ms) == 0 || depth >= maxDepth {
		return append(appendJSON(appendSpaces(dst, indent), value), '\n')
	}
	for k := range ms {
		dst = appendSpaces(dst, indent)
		if value[0] == '{' {
			dst = appendMember(dst, &ms[k], indent, depth)
		} else {
			dst = appendElement(dst, ms[k].value, indent, depth)
		}
	}
	return dst
}

// appendMember appends "key: value" to a line that is already indented, and the further lines of
// the value.
func appendMember(dst []byte, m *member, indent, depth int) []byte {
	dst = append(appendKey(dst, m.key), ':')
	return appendBehindKey(dst, m.value, indent, depth)
}

// appendBehindKey appends a member's value after its colon. Like kubectl, it does not indent lists
// below their key.
func appendBehindKey(dst, value []byte, indent, depth int) []byte {
	switch {
	case !isContainer(value):
		return append(appendScalar(append(dst, ' '), value, indent+2), '\n')
	case isEmpty(value) || depth+1 >= maxDepth:
		return append(appendJSON(append(dst, ' '), value), '\n')
	case value[0] == '[':
		return appendBlock(append(dst, '\n'), value, indent, depth+1)
	}
	return appendBlock(append(dst, '\n'), value, indent+2, depth+1)
}

// appendElement appends "- value" to a line that is already indented, and the further lines of the
// value.
func appendElement(dst, value []byte, indent, depth int) []byte {
	dst = append(dst, '-', ' ')
	if !isContainer(value) || isEmpty(value) || depth+1 >= maxDepth {
		if isContainer(value) {
			return append(appendJSON(dst, value), '\n')
		}
		return append(appendScalar(dst, value, indent+2), '\n')
	}
	// The first line of the content follows the dash, which replaces its indentation.
	from := len(dst)
	dst = appendBlock(dst, value, indent+2, depth+1)
	return append(dst[:from], dst[min(from+indent+2, len(dst)):]...)
}

func appendSpaces(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, ' ')
	}
	return dst
}

// isEmpty reports whether an object or array has no members.
func isEmpty(value []byte) bool {
	i := jsonscan.SkipSpace(value, 1)
	return i < len(value) && (value[i] == '}' || value[i] == ']')
}

func appendKey(dst, raw []byte) []byte {
	key := jsonscan.Unescape(raw)
	if plainYAML(key) {
		return append(dst, key...)
	}
	return appendQuoted(dst, key)
}

// appendScalar appends a scalar as YAML. A text of several lines becomes an indented literal block
// if nothing in it must be escaped.
func appendScalar(dst, value []byte, indent int) []byte {
	if !isString(value) {
		return appendClean(dst, value)
	}
	text := unquote(value)
	switch {
	case plainYAML(text):
		return append(dst, text...)
	case literal(text):
		return appendLiteral(dst, text, indent)
	}
	return appendQuoted(dst, text)
}

// appendInline appends a scalar as YAML on one line.
func appendInline(dst, value []byte) []byte {
	if !isString(value) {
		return appendClean(dst, value)
	}
	text := unquote(value)
	if plainYAML(text) {
		return append(dst, text...)
	}
	return appendQuoted(dst, text)
}

// plainYAML reports whether text means itself in YAML 1.1 and 1.2 without quotes. It errs on the
// side of quotes.
func plainYAML(text []byte) bool {
	if len(text) == 0 || len(text) > 1<<20 {
		return false
	}
	c, last := text[0], text[len(text)-1]
	letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	option := c == '-' && len(text) > 1 && (text[1] == '-' && len(text) > 3 || 'a' <= text[1] && text[1] <= 'z')
	if '0' <= c && c <= '9' {
		return quantity(text)
	}
	if !letter && c != '/' && c != '_' && c != '$' && !option || last == ' ' || last == ':' ||
		bytes.HasPrefix(text, []byte("---")) {
		return false
	}
	for i, c := range text {
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
		case c == ':' && text[i+1] == ' ', c == '#' && text[i-1] == ' ': // ':' is never last, '#' never first
			return false
		case c < ' ' || c > '~':
			return false
		}
	}
	if len(text) > len("false") {
		return true
	}
	switch strings.ToLower(string(text)) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return false
	}
	return true
}

// quantity reports whether text begins with a number but is none, such as 500m and 256Mi. It needs
// a letter that no number has, and may have only letters, digits and dots (YAML 1.1 has times and
// sexagesimal numbers).
func quantity(text []byte) bool {
	word := false
	for _, c := range text {
		switch {
		case 'g' <= c && c <= 'z' && c != 'o' && c != 'x' || 'G' <= c && c <= 'Z' && c != 'O' && c != 'X':
			word = true
		case '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.':
		default:
			return false
		}
	}
	return word
}

// appendQuoted appends text in double quotes.
func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	for len(text) > 0 {
		n := bytes.IndexAny(text, `"\`)
		if n < 0 {
			n = len(text)
		}
		dst = appendClean(dst, text[:n])
		text = text[n:]
		if len(text) > 0 {
			dst = append(dst, '\\', text[0])
			text = text[1:]
		}
	}
	return append(dst, '"')
}

// literal reports whether text can be a literal block: several lines, nothing to escape, and no
// line whose spaces at the begin or end would change the meaning.
func literal(text []byte) bool {
	if bytes.IndexByte(text, '\n') < 0 || text[0] == ' ' || text[0] == '\n' || text[0] == '\t' {
		return false
	}
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
				return false
			}
			if (c == ' ' || c == '\t') && (i == 0 || text[i-1] == '\n') && blank(text[i:]) {
				return false
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			return false
		}
		i += size
	}
	return true
}

// blank reports whether the first line of text has only white space.
func blank(text []byte) bool {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return len(bytes.TrimLeft(line, " \t")) == 0
}

func appendLiteral(dst, text []byte, indent int) []byte {
	dst = append(dst, '|')
	body := bytes.TrimRight(text, "\n")
	switch ends := len(text) - len(body); {
	case ends == 0:
		dst = append(dst, '-')
	case ends > 1:
		dst = append(dst, '+')
	}
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		dst = append(dst, '\n')
		if len(line) > 0 {
			dst = append(appendSpaces(dst, indent), line...)
		}
	}
	for range len(text) - len(body) - 1 {
		dst = append(dst, '\n')
	}
	return dst
}

// appendJSON appends a value as JSON on one line, and escapes everything that a terminal would
// interpret.
func appendJSON(dst, value []byte) []byte {
	inString, escaped := false, false
	for i := 0; i < len(value); {
		c := value[i]
		if c < utf8.RuneSelf {
			if inString || c > ' ' {
				dst = appendRune(dst, rune(c))
			}
			if inString && c == '"' && !escaped {
				inString = false
			} else if c == '"' {
				inString = true
			}
			escaped = inString && c == '\\' && !escaped
			i++
			continue
		}
		r, size := utf8.DecodeRune(value[i:])
		dst, escaped = appendRune(dst, r), false
		i += size
	}
	return dst
}
