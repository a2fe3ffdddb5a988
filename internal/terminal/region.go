package terminal

import (
	"strconv"
	"unicode/utf8"
)

// The control sequences of a region (ECMA-48 and DEC's private modes). Every terminal knows them.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	eraseLine  = "\x1b[K" // from the cursor to the line's end
	eraseBelow = "\x1b[J" // from the cursor to the screen's end
)

// What is assumed of a terminal that does not tell its size.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// region is some lines at the bottom of what was written. It belongs to an Output, whose lock guards it. Between writes
// the cursor is at the start of its first line, which is blank.
type region struct {
	out    *Output
	render func(c *canvas)
	buf    []byte // reused
	gone   bool
}

// draw is what writes text (whole lines, may be nil) in the region's place and the region below.
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
	lines := c.lines[:min(len(c.lines), max(c.height-2, 0))] // the blank line, and one that was written, stay in sight
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

// show draws the region, from now on by render. change runs under the lock that render runs under.
func (r *region) show(change func(), render func(c *canvas)) {
	r.out.mu.Lock()
	defer r.out.mu.Unlock()
	change()
	r.render, r.out.region = render, r
	_, _ = r.out.Writer.Write(r.draw(nil)) // there is nobody to tell that there is nobody to show it to
}

// remove erases the region and leaves what last renders (nil: nothing) in its place. A second time it does nothing.
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

// canvas takes lines and cuts them to the width.
type canvas struct {
	out           *Output
	width, height int // the columns that a line may have; the lines of the screen
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
	c.width-- // in the last column some terminals have gone to the next line, others have not
	return c
}

// line begins a line.
func (c *canvas) line() {
	c.lines, c.used = append(c.lines, nil), 0
}

// add adds text to the last line, as much as has room.
func (c *canvas) add(s Style, text string) {
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

// cut shortens text to n columns, of which the last one says that there was more.
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
