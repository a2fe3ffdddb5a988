package terminal

import (
	"strconv"
	"unicode/utf8"
)

// The control sequences of a region (ECMA-48 and DEC's private modes). Every terminal supports
// them.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	eraseLine  = "\x1b[K" // from the cursor to the line's end
	eraseBelow = "\x1b[J" // from the cursor to the screen's end
)

// The assumed size of a terminal that does not report one.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// region is a set of lines below all other output. It belongs to an Output, whose lock guards it.
// Between writes the cursor is at the start of its first line, which is blank.
type region struct {
	out    *Output
	render func(c *canvas)
	buf    []byte // reused
	gone   bool
}

// draw returns the bytes that write text (whole lines, may be nil) over the region and draw the
// region below it.
func (r *region) draw(text []byte) []byte {
	c := newCanvas(r.out)
	r.render(c)

	b := append(r.buf[:0], hideCursor...)
	b = append(b, '\r')
	if len(text) > 0 {
		b = append(b, eraseBelow...)
		b = append(b, text...)
		if text[len(text)-1] != '\n' {
			b = append(b, '\n')
		}
	}
	b = append(b, eraseLine...)
	lines := c.lines[:min(len(c.lines), max(c.height-2, 0))] // the blank line and one written line stay visible
	for _, l := range lines {
		b = append(b, '\n')
		b = append(b, l...)
		b = append(b, eraseLine...)
	}
	b = append(b, eraseBelow...)
	b = append(b, '\r')
	if len(lines) > 0 {
		b = append(b, "\x1b["...)
		b = strconv.AppendInt(b, int64(len(lines)), 10)
		b = append(b, 'A') // up
	}
	r.buf = append(b, showCursor...)
	return r.buf
}

// show draws the region; later draws call render, too. It calls change under the lock that guards
// calls of render.
func (r *region) show(change func(), render func(c *canvas)) {
	r.out.mu.Lock()
	defer r.out.mu.Unlock()
	change()
	r.render, r.out.region = render, r
	_, _ = r.out.Writer.Write(r.draw(nil)) // an error could not be shown to anybody
}

// remove erases the region and writes the lines of last (nil: none) in its place. A second call
// does nothing.
func (r *region) remove(last func(c *canvas)) {
	r.out.mu.Lock()
	defer r.out.mu.Unlock()
	if r.gone {
		return
	}
	r.gone = true
	var b []byte
	if r.out.region == r {
		r.out.region = nil
		b = append(b, "\r"+eraseBelow...)
	}
	if last != nil {
		c := newCanvas(r.out)
		last(c)
		for _, l := range c.lines {
			b = append(append(b, l...), '\n')
		}
	}
	if len(b) > 0 {
		_, _ = r.out.Writer.Write(b)
	}
}

// canvas collects lines and cuts them to the width.
type canvas struct {
	out           *Output
	width, height int // maximum columns of a line; lines of the screen
	lines         [][]byte
	used          int // columns of the last line
}

func newCanvas(o *Output) *canvas {
	c := &canvas{out: o, width: o.Width}
	if o.Size != nil {
		c.width, c.height = o.Size()
	}
	if c.width <= 0 {
		c.width = defaultWidth
	}
	if c.height <= 0 {
		c.height = defaultHeight
	}
	c.width-- // after the last column some terminals have wrapped and others have not
	return c
}

// startLine starts a new line.
func (c *canvas) startLine() {
	c.lines, c.used = append(c.lines, nil), 0
}

// addText adds text to the last line, cut to the remaining columns.
func (c *canvas) addText(s Style, text string) {
	room := c.width - c.used
	if room <= 0 {
		return
	}
	c.used += utf8.RuneCountInString(text)
	if c.used > c.width {
		text = cut(text, room)
	}
	last := &c.lines[len(c.lines)-1]
	*last = c.out.Append(*last, s, text)
}

// cut shortens text to n columns. If it was longer, the last column is an ellipsis.
func cut(text string, n int) string {
	if n <= 0 {
		return ""
	}
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	runes := []rune(text)
	return string(runes[:n-1]) + "…"
}
