package main

import (
	"regexp"
	"strings"
)

// block is a paragraph, a list item or a cell of a table: sentences do not cross its borders.
type block struct {
	lines []line
	cell  bool // of a table, or a message: a semicolon ends a sentence
}

type line struct {
	number int
	text   string
}

var (
	listItem  = regexp.MustCompile(`^\s*(?:[-*+]|\d+\.)\s+`)
	separator = regexp.MustCompile(`^\|?[\s:|-]+\|?$`)
	htmlLine  = regexp.MustCompile(`^\s*<`)
)

// markdown returns the blocks of a document. Code, headings and the header rows of tables are left
// out.
func markdown(text []byte) []block {
	var blocks []block
	var open block
	end := func() {
		if len(open.lines) > 0 {
			blocks = append(blocks, open)
		}
		open = block{}
	}
	fence := ""
	comment := false
	list := false
	lines := strings.Split(string(text), "\n")
	for i, text := range lines {
		trimmed := strings.TrimSpace(text)
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			continue
		case strings.HasPrefix(trimmed, "```"):
			fence = "```"
			end()
			continue
		case comment || strings.HasPrefix(trimmed, "<!--"):
			comment = !strings.Contains(trimmed, "-->")
			end()
			continue
		}
		indented := strings.HasPrefix(text, "    ") && len(open.lines) == 0 && !list
		switch {
		case trimmed == "":
			end()
		case strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "!["), htmlLine.MatchString(text), indented:
			end()
			list = false
		case strings.HasPrefix(trimmed, "|"):
			end()
			list = false
			header := i+1 < len(lines) && separator.MatchString(strings.TrimSpace(lines[i+1])) &&
				strings.Contains(lines[i+1], "-")
			if header || separator.MatchString(trimmed) {
				continue
			}
			for cell := range strings.SplitSeq(strings.ReplaceAll(strings.Trim(trimmed, "|"), `\|`, "/"), "|") {
				blocks = append(blocks, block{[]line{{i + 1, strings.TrimSpace(cell)}}, true})
			}
		case listItem.MatchString(text):
			end()
			list = true
			open.lines = append(open.lines, line{i + 1, listItem.ReplaceAllString(text, "")})
		default:
			if len(open.lines) == 0 && !strings.HasPrefix(text, " ") {
				list = false
			}
			open.lines = append(open.lines, line{i + 1, trimmed})
		}
	}
	end()
	return blocks
}

// sentence is a sentence in plain words, and the line that it begins in.
type sentence struct {
	line int
	text string
}

var (
	codeSpan  = regexp.MustCompile("`+[^`]*`+")
	linkText  = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	emphasis  = regexp.MustCompile(`\*\*|\*|__`)
	fullStop  = regexp.MustCompile(`[.!?]["')\x00]*\s+\S`)
	semicolon = regexp.MustCompile(`;\s+`)
	abbrev    = regexp.MustCompile(`\b(?:e\.g|i\.e|etc|vs|cf|approx)\.$`)
)

// sentences splits the block. A code span becomes one capital word, so that it counts as one and
// may begin a sentence.
func (b block) sentences() []sentence {
	var joined strings.Builder
	var starts []int
	for _, l := range b.lines {
		starts = append(starts, joined.Len())
		joined.WriteString(l.text + " ")
	}
	// Replacements keep the length, so that the line can be computed from an offset.
	text := codeSpan.ReplaceAllStringFunc(joined.String(), func(s string) string {
		return "CODE" + strings.Repeat("\x00", max(0, len(s)-4))
	})
	text = linkText.ReplaceAllStringFunc(text, func(s string) string {
		inner := linkText.FindStringSubmatch(s)[1]
		return inner + strings.Repeat("\x00", len(s)-len(inner))
	})
	text = emphasis.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\x00", len(s)) })

	var out []sentence
	add := func(from, to int) {
		plain := strings.Join(strings.Fields(strings.ReplaceAll(text[from:to], "\x00", "")), " ")
		if plain == "" {
			return
		}
		for from < to && (text[from] == ' ' || text[from] == 0) {
			from++
		}
		i := 0
		for i+1 < len(starts) && starts[i+1] <= from {
			i++
		}
		out = append(out, sentence{b.lines[i].number, plain})
	}
	from := 0
	for at := 0; at < len(text); {
		m := fullStop.FindStringIndex(text[at:])
		if b.cell {
			if s := semicolon.FindStringIndex(text[at:]); s != nil && (m == nil || s[0] < m[0]) {
				m = []int{s[0], s[1] + 1}
			}
		}
		if m == nil {
			break
		}
		end := at + m[0] + 1
		at = end
		if abbrev.MatchString(strings.ReplaceAll(text[from:end], "\x00", "")) {
			continue
		}
		add(from, end)
		from = end
	}
	add(from, len(text))
	return out
}
