package main

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// style is the style of a run of text. The zero value is plain.
type style struct {
	foreground                   int // 30-37 or 90-97, as in SGR; 0: the default
	bold, dim, italic, underline bool
}

// span is text of one style within one line.
type span struct {
	text   string
	column int // the column of its beginning, from 0
	cells  int // its width in columns
	style
}

// parse splits the output of a command into lines of spans. It supports the output of kubecdc: text
// and SGR (ECMA-48, 8.3.117). Everything else, from a tab to a cursor movement, is an error, so
// that an image is never silently wrong.
func parse(output string) ([][]span, error) {
	var lines [][]span
	var s style
	for i, line := range strings.Split(strings.TrimSuffix(output, "\n"), "\n") {
		spans, err := parseLine(line, &s)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		lines = append(lines, spans)
	}
	return lines, nil
}

// parseLine starts with style s, and sets it to the style at the end of the line.
func parseLine(line string, s *style) ([]span, error) {
	var spans []span
	column := 0
	for line != "" {
		text, rest, escaped := strings.Cut(line, "\x1b")
		if text != "" {
			cells, err := measure(text)
			if err != nil {
				return nil, err
			}
			spans = append(spans, span{
				text:   text,
				column: column,
				cells:  cells,
				style:  *s,
			})
			column += cells
		}
		if !escaped {
			break
		}
		parameters, ok := strings.CutPrefix(rest, "[")
		end := strings.IndexFunc(parameters, func(r rune) bool { return r >= 0x40 && r <= 0x7e })
		if !ok || end < 0 || parameters[end] != 'm' {
			return nil, fmt.Errorf("no SGR sequence: %q", "\x1b"+rest)
		}
		for p := range strings.SplitSeq(parameters[:end], ";") {
			if err := s.apply(p); err != nil {
				return nil, err
			}
		}
		line = parameters[end+1:]
	}
	return spans, nil
}

// measure returns the width of text in columns of a terminal.
func measure(text string) (int, error) {
	cells := 0
	for _, r := range text {
		switch k := width.LookupRune(r).Kind(); {
		case !unicode.IsPrint(r), unicode.Is(unicode.M, r):
			return 0, fmt.Errorf("cannot draw %q in %q", r, text)
		case k == width.EastAsianWide, k == width.EastAsianFullwidth:
			cells += 2
		default:
			cells++
		}
	}
	return cells, nil
}

func (s *style) apply(parameter string) error {
	switch parameter {
	case "", "0":
		*s = style{}
	case "1":
		s.bold = true
	case "2":
		s.dim = true
	case "3":
		s.italic = true
	case "4":
		s.underline = true
	case "22":
		s.bold, s.dim = false, false
	case "23":
		s.italic = false
	case "24":
		s.underline = false
	case "39":
		s.foreground = 0
	default:
		var code int
		if n, err := fmt.Sscanf(parameter, "%d", &code); n != 1 || err != nil || code < 30 || code > 97 ||
			code > 37 && code < 90 {
			return fmt.Errorf("cannot draw SGR %q", parameter)
		}
		s.foreground = code
	}
	return nil
}
