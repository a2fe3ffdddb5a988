package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// The geometry of a window, in pixels. The usual monospaced fonts have an advance of 0.6 em.
// textLength stretches others to it, so that columns are aligned in any font.
const (
	fontSize   = 14
	cellWidth  = 8.4
	lineHeight = 20
	padding    = 18
	titleBar   = 36
)

// theme is a dark window that fits light and dark pages. Its colours have a contrast of 4.5:1 or
// more against the background (WCAG AA). The border separates it from a dark page.
const theme = `
  .window{fill:#0d1117;stroke:#3d444d}
  .bar{fill:#1c2128}
  text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace;fill:#d1d7e0;white-space:pre}
  .title{fill:#9198a1;text-anchor:middle}
  .b{font-weight:700;fill:#f0f6fc} .i{font-style:italic} .u{text-decoration:underline} .d{fill:#8b949e}
  .c30{fill:#8b949e} .c31{fill:#ff7b72} .c32{fill:#7ee787} .c33{fill:#e3b341} .c34{fill:#79c0ff} .c35{fill:#d2a8ff} .c36{fill:#76e3ea} .c37{fill:#d1d7e0}
  .c90{fill:#8b949e} .c91{fill:#ffa198} .c92{fill:#a5f3ab} .c93{fill:#f2cc60} .c94{fill:#a5d6ff} .c95{fill:#e2c5ff} .c96{fill:#b3f0ff} .c97{fill:#f0f6fc}
`

// render draws lines as a terminal window with the given number of columns. The SVG has no script,
// no font and no external reference, so that GitHub shows it.
func render(title string, lines [][]span, columns int) ([]byte, error) {
	w := 2*padding + int(float64(columns)*cellWidth+0.5)
	h := titleBar + 2*padding + len(lines)*lineHeight
	var b bytes.Buffer
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", w, h, w,
		h)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", escape(title), theme)
	fmt.Fprintf(&b, `<rect class="window" x=".5" y=".5" width="%d" height="%d" rx="9"/>`+"\n", w-1, h-1)
	fmt.Fprintf(&b, `<path class="bar" d="M1 %dV10a9 9 0 0 1 9-9H%da9 9 0 0 1 9 9V%dz"/>`+"\n", titleBar, w-10,
		titleBar)
	for i, fill := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="18" r="6" fill="%s"/>`+"\n", 20+20*i, fill)
	}
	fmt.Fprintf(&b, `<text class="title" x="%d" y="23">%s</text>`+"\n", w/2, escape(title))
	for i, spans := range lines {
		y := titleBar + padding + i*lineHeight + fontSize
		for _, s := range spans {
			if s.column+s.cells > columns {
				return nil, fmt.Errorf("line %d is wider than %d columns", i+1, columns)
			}
			drawSpan(&b, s, y)
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

// drawSpan leaves out the spaces around the text, because XML readers treat them differently.
func drawSpan(b *bytes.Buffer, s span, y int) {
	text := strings.TrimLeft(s.text, " ")
	s.column += len(s.text) - len(text)
	s.cells -= len(s.text) - len(text)
	s.cells -= len(text) - len(strings.TrimRight(text, " "))
	text = strings.TrimRight(text, " ")
	if text == "" {
		return
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%d" textLength="%.1f"%s xml:space="preserve">%s</text>`+"\n",
		padding+float64(s.column)*cellWidth, y, float64(s.cells)*cellWidth, s.class(), escape(text))
}

// class returns the attribute with the classes of theme, "" for plain text.
func (s style) class() string {
	var names []string
	for _, c := range []struct {
		on   bool
		name string
	}{{s.bold, "b"}, {s.dim, "d"}, {s.italic, "i"}, {s.underline, "u"}, {
		s.foreground != 0, fmt.Sprintf("c%d", s.foreground),
	}} {
		if c.on {
			names = append(names, c.name)
		}
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf(` class="%s"`, strings.Join(names, " "))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder does not fail
	return b.String()
}
