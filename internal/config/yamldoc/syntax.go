package yamldoc

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// notUTF8 reports the first byte that is not UTF-8.
func (d *decoder) notUTF8() {
	if bytes.HasPrefix(d.data, []byte("\xff\xfe")) || bytes.HasPrefix(d.data, []byte("\xfe\xff")) {
		d.fail(nil, "", "must be UTF-8, this is UTF-16; save it as UTF-8")
		return
	}
	rest := d.data
	for len(rest) > 0 {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			break
		}
		rest = rest[size:]
	}
	before := d.data[:len(d.data)-len(rest)]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	d.fail(&token.Token{Position: &token.Position{
		Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + utf8.RuneCount(line),
	}}, "", "must be UTF-8, here is the byte 0x%02x", rest[0])
}

// syntax reports an error of the parser. The message and the line identify the usual mistakes, for
// which it suggests a fix.
func (d *decoder) syntax(err yaml.Error) {
	tok, message := err.GetToken(), err.GetMessage()
	if tok == nil || tok.Position == nil {
		d.fail(tok, "", "is not valid YAML: %s", message)
		return
	}
	line, column := tok.Position.Line, tok.Position.Column
	text := []rune(d.line(line))
	column = min(max(column, 1), len(text)+1)
	before, at := string(text[:column-1]), string(text[column-1:])
	begins := func(c string) bool { return strings.HasPrefix(at, c) || strings.HasSuffix(before, c) }
	says := func(s string) bool { return strings.Contains(message, s) }

	switch next := d.line(line + 1); {
	case strings.Contains(indentation(d.line(line)), "\t"):
		message = "the line is indented with a tab; YAML is indented with spaces only"
	case says("already defined at"):
		if m := defined.FindStringSubmatch(message); m != nil {
			message = m[1] + " is given twice, first in line " + m[2]
		}
	case says("end character of"):
		message = "unclosed quote"
	case says("reserved character"), says("directive"), begins("*"), tagged.MatchString(d.line(line)):
		message = "a text that begins with one of * ! & @ ` % has a special meaning in YAML: put it in quotes"
	case says("must be specified"), says("not found"):
		message = "unclosed [ or {; or a text inside contains one of [ ] { } , and needs quotes"
	case says("mapping value is not allowed") && len(indentation(next)) > len(indentation(d.line(line))) &&
		!says("pre-defined"):
		tok = &token.Token{Position: &token.Position{Line: line + 1, Column: 1 + len(indentation(next))}}
		message = "the line is indented deeper than the one above it: the keys of one mapping begin in the same column"
	case says("mapping value is not allowed"):
		message = "a text with a colon and a space in it needs quotes"
	case says("value is not allowed") && closed.MatchString(before):
		message = "something follows the closing quote: put the whole value in quotes, 'like \"this\"'"
	case says("value is not allowed"):
		message = "the line is indented like no line above it: the keys of one mapping begin in the same column"
	case says("non-map value") && strings.HasPrefix(at, "- "):
		message = "an item of a list, where a key is expected"
	case says("non-map value") && strings.Contains(at, ":"):
		message = "there must be a space after the colon of a key"
	case says("non-map value"):
		message = "must be a key followed by a colon"
	default:
		message = "is not valid YAML: " + message
	}
	d.fail(tok, "", "%s", Mask(message))
}

var (
	defined = regexp.MustCompile(`mapping key "(.*)" already defined at \[(\d+):`)
	closed  = regexp.MustCompile(`[:-] +("[^"]*"|'[^']*') *$`)
	tagged  = regexp.MustCompile(`[\[,:] *!\w`) // [!kube-system]
)

func indentation(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }
