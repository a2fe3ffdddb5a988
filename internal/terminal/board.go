package terminal

import (
	"context"
	"time"
)

// Span is a piece of a line in one look.
type Span struct {
	Style Style
	Text  string
}

// Line is one line, of spans from left to right.
type Line []Span

// AppendLine appends a line with its line feed to dst, as wide as it is. What is not printable is escaped.
func (o *Output) AppendLine(dst []byte, l Line) []byte {
	for _, s := range l {
		dst = o.Append(dst, s.Style, printable(s.Text))
	}
	return append(dst, '\n')
}

// Board is a live region of lines, redrawn in place now and then: what does not fit the screen, to the right and below, is
// not shown.
type Board struct {
	out   *Output
	every time.Duration
	lines func(ctx context.Context) []Line
}

// NewBoard shows lines, which Run asks for every time. lines ends soon after its context.
func NewBoard(out *Output, every time.Duration, lines func(ctx context.Context) []Line) *Board {
	return &Board{out: out, every: every, lines: lines}
}

// Run draws until ctx ends, and leaves what it has drawn last, whole. On an Output that is not interactive it writes all lines
// anew each time, with a blank one between.
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
	_, _ = b.out.Write(text) // there is nobody to tell that nobody reads it
}

func render(c *canvas, lines []Line) {
	for _, l := range lines {
		c.line()
		for _, s := range l {
			c.add(s.Style, printable(s.Text))
		}
	}
}
