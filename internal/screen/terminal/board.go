package terminal

import (
	"context"
	"time"
)

// Span is a part of a line in one style.
type Span struct {
	Style Style
	Text  string
}

// Line is one line: spans from left to right.
type Line []Span

// AppendLine appends the whole line and a line feed to dst, whatever the width of the screen. It
// escapes unprintable characters.
func (o *Output) AppendLine(dst []byte, l Line) []byte {
	for _, s := range l {
		dst = o.Append(dst, s.Style, printable(s.Text))
	}
	return append(dst, '\n')
}

// Board is a live region of lines that is redrawn in place at an interval. It omits everything that
// does not fit the screen, to the right and below.
type Board struct {
	out   *Output
	every time.Duration
	lines func(ctx context.Context) []Line
}

// NewBoard returns a board whose Run calls lines at the interval every. lines must return soon
// after its context ends.
func NewBoard(out *Output, every time.Duration, lines func(ctx context.Context) []Line) *Board {
	return &Board{out: out, every: every, lines: lines}
}

// Run draws until ctx ends, and leaves all of the last lines on the screen. On an Output that is
// not interactive it writes all lines each time, separated by a blank one.
func (b *Board) Run(ctx context.Context) {
	r := &region{out: b.out}
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	var last []Line
	for n := 0; ; n++ {
		lines := b.lines(ctx)
		switch {
		case ctx.Err() != nil:
		case b.out.Interactive:
			last = lines
			r.show(func() {}, func(c *canvas) { render(c, lines) })
		default:
			b.write(lines, n > 0)
		}
		select {
		case <-ctx.Done():
			if b.out.Interactive {
				r.remove(func(c *canvas) { render(c, last) })
			}
			return
		case <-tick.C:
		}
	}
}

func (b *Board) write(lines []Line, apart bool) {
	var text []byte
	if apart {
		text = append(text, '\n')
	}
	for _, l := range lines {
		text = b.out.AppendLine(text, l)
	}
	_, _ = b.out.Write(text) // an error could not be reported to the reader
}

func render(c *canvas, lines []Line) {
	for _, l := range lines {
		c.startLine()
		for _, s := range l {
			c.addText(s.Style, printable(s.Text))
		}
	}
}
