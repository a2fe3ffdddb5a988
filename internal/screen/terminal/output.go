package terminal

import (
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/term"
)

// Output is where a command writes for a person or for a pipe. At a terminal, it escapes everything
// that the terminal would interpret, except line ends, tabs and the styles of this package: text
// may come from clusters. It must not be copied once it is used.
type Output struct {
	io.Writer

	Interactive bool // a terminal: lines can be redrawn
	Color       bool // SGR sequences are permitted
	Width       int  // columns; 0: no limit

	// Size returns the current columns and lines of the terminal, which may have been resized; 0 if
	// unknown. It may be nil.
	Size func() (width, height int)

	mu     sync.Mutex
	region *region // drawn below the written lines; nil if there is none
}

// Detect detects the capabilities of w. getenv is os.Getenv. Detect honours NO_COLOR
// (https://no-color.org), CLICOLOR_FORCE and TERM, and COLUMNS unless w is a terminal, which
// reports its own width. It returns an Output unchanged.
func Detect(w io.Writer, getenv func(string) string) *Output {
	if o, ok := w.(*Output); ok {
		return o
	}
	o := &Output{Writer: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		o.Interactive = getenv("TERM") != "dumb"
		o.Size = func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 0, 0
			}
			return width, height
		}
		o.Width, _ = o.Size()
	} else if columns, err := strconv.Atoi(getenv("COLUMNS")); err == nil && columns > 0 {
		o.Width = columns
	}
	o.Color = (o.Interactive || getenv("CLICOLOR_FORCE") != "" && getenv("CLICOLOR_FORCE") != "0") &&
		getenv("NO_COLOR") == ""
	return o
}

// Guard returns w, but as an Output if w is a terminal.
func Guard(w io.Writer, getenv func(string) string) io.Writer {
	if o := Detect(w, getenv); o.isTerminal() {
		return o
	}
	return w
}

// Unguard returns the file of an Output, for other programs, and any other writer unchanged.
func Unguard(w io.Writer) io.Writer {
	if o, ok := w.(*Output); ok {
		return o.Writer
	}
	return w
}

// isTerminal reports whether the output is a terminal, even one that cannot redraw lines.
func (o *Output) isTerminal() bool { return o.Interactive || o.Size != nil }

// columns returns the maximum width of a line; 0 if the output is not interactive or the width is
// unknown.
func (o *Output) columns() int {
	if !o.Interactive {
		return 0
	}
	if o.Size == nil {
		return o.Width
	}
	width, _ := o.Size()
	return width
}

// Write writes whole lines, above the region if one is shown. At a terminal, a character must not
// be divided between two calls.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isTerminal() {
		return o.Writer.Write(p)
	}
	text := harmless(p, o.Color)
	if o.region != nil {
		text = o.region.draw(text)
	}
	if _, err := o.Writer.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Style is an SGR parameter (ECMA-48, 8.3.117).
type Style string

// The styles that commands use.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Blue   Style = "34"
	Cyan   Style = "36"
)

// Append appends text in the style to dst, or plain text if the output has no colour.
func (o *Output) Append(dst []byte, s Style, text string) []byte {
	if !o.Color || s == Plain || text == "" {
		return append(dst, text...)
	}
	dst = append(dst, "\x1b["...)
	dst = append(dst, s...)
	dst = append(dst, 'm')
	dst = append(dst, text...)
	return append(dst, "\x1b[0m"...)
}

// Paint returns text in the style, like Append.
func (o *Output) Paint(s Style, text string) string {
	if !o.Color || s == Plain || text == "" {
		return text
	}
	return string(o.Append(nil, s, text))
}
