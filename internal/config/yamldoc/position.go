package yamldoc

import (
	"strings"
	"unicode"
)

// position is a line and a column in a file, both from 1. The column counts characters. The value
// of an override has only a source.
type position struct {
	line, column int
	source       string
}

// Locate sets the position of an error from its path: the position of the path, or of the nearest
// parent that the file has. It conceals values of variables in the message.
func (d *Document) Locate(e *Error) *Error {
	d.concealError(e)
	for path := e.Path; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if at, ok := d.positions[path]; ok {
			if at.source != "" {
				e.File = at.source
				return e
			}
			if path == e.Path && e.TextLine > 0 {
				at = d.inside(at, d.texts[path], e.TextLine, e.TextColumn)
			}
			e.Line, e.Column = at.line, at.column
			break
		}
	}
	e.File, e.lines = d.name, d.excerpts
	return e
}

// inside returns the position in the file of a line and a column of a text, both from 1. The text
// begins at a position, and may be folded, indented or quoted there. If it is written with escapes
// before that column, inside returns the position of the text.
func (d *Document) inside(at position, text string, line, column int) position {
	rest, offset := []rune(text), column-1
	for l := 1; l < line; l++ {
		end := strings.IndexByte(text, '\n')
		if end < 0 {
			return at
		}
		offset += len([]rune(text[:end])) + 1
		text = text[end+1:]
	}
	if offset < 0 || offset > len(rest) {
		return at
	}
	for l := at.line; ; l++ {
		if l > len(d.lines) {
			return at
		}
		written, from := []rune(d.line(l)), 0
		if l == at.line {
			from = min(at.column-1, len(written))
			switch first := string(written[from:]); {
			case strings.HasPrefix(first, "|"), strings.HasPrefix(first, ">"):
				continue // the text begins in the next line
			case strings.HasPrefix(first, `"`), strings.HasPrefix(first, "'"):
				from++
			}
		}
		for from < len(written) && unicode.IsSpace(written[from]) {
			from++
		}
		skipped := 0
		for skipped < len(rest) && unicode.IsSpace(rest[skipped]) && skipped < offset {
			skipped++
		}
		rest, offset = rest[skipped:], offset-skipped
		same := 0
		for same < len(rest) && from+same < len(written) && rest[same] == written[from+same] {
			same++
		}
		if offset <= same {
			return position{line: l, column: from + offset + 1}
		}
		if strings.TrimSpace(string(written[from+same:])) != "" {
			return at
		}
		rest, offset = rest[same:], offset-same
	}
}
