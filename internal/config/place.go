package config

import (
	"strings"
	"unicode"
)

// place is where something stands in a file: from 1, the column in characters.
type place struct{ line, column int }

// locate gives an error of Validate or of a Check the place of its path in the file, or that of what the path is part of.
func (d *decoder) locate(e *Error) *Error {
	for path := e.Path; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if at, ok := d.places[path]; ok {
			if path == e.Path && e.TextLine > 0 {
				at = d.inside(at, d.texts[path], e.TextLine, e.TextColumn)
			}
			e.Line, e.Column = at.line, at.column
			break
		}
	}
	e.File, e.excerpt = d.name, excerpt(d.lines, e.Line, e.Column)
	return e
}

// inside is where a line and a column, both from 1, of a text that is written at a place stand in the file. The text may be
// folded, indented or quoted there: it is followed through the lines as far as they have it as it is. Where it is written
// in another way before that (with escapes), it is the place of the text.
func (d *decoder) inside(at place, text string, line, column int) place {
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
				continue // it begins in the next line
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
			return place{line: l, column: from + offset + 1}
		}
		if strings.TrimSpace(string(written[from+same:])) != "" {
			return at
		}
		rest, offset = rest[same:], offset-same
	}
}
