package console

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// View is the presentation of events.
type View string

// The views.
const (
	Lines View = ""     // one line each
	Diff  View = "diff" // one line each, followed by the changes in context
	JSON  View = "json" // the unchanged record, one per line
	YAML  View = "yaml" // one document each
)

// Options controls how events are shown.
type Options struct {
	View View
	// Format returns the text of an event, with its line end, for a format that is not a View. Nil:
	// View decides.
	Format func(*consume.Event) ([]byte, error)
	// Wide shows everything: resourceVersion, uid, cluster and full times on the line, all fields
	// in a difference, and whole objects if they were created or deleted. It cuts nothing.
	Wide bool
	// Cluster returns what the line of an event says of its cluster, "" for nothing (if Wide, its
	// name). nil: nothing.
	Cluster func(*consume.Event) string
	// Timeless omits the times of events.
	Timeless bool
	// Reads shows each read. Otherwise, if lines have a width, thus for a person, consecutive reads
	// are counted.
	Reads bool
	// Late shows when an object was changed if its event is much later. Wide shows it anyway.
	Late bool
	// Location is the time zone of shown times; nil means time.Local.
	Location *time.Location
}

// Printer prints events. It is not safe for concurrent use.
type Printer struct {
	out   *terminal.Output
	w     *bufio.Writer
	opts  Options
	width int // columns; 0: no limit

	buf  []byte // the text of one event
	from int    // start of the current line in buf
	used int    // columns of the line that are in use
	full bool   // the line has been cut

	differ  differ
	scratch []byte
	lead    []byte
	lines   [][]byte

	resources, names int // current widths of the columns
	day              string
	documents        int

	reads     []readCount // not shown yet
	readsTime time.Time
}

type readCount struct {
	resource string
	n        int
}

// bufferBytes is the size of the write buffer.
const bufferBytes = 64 << 10

// New returns a Printer that writes to out, when its buffer is full or Flush is called.
func New(out *terminal.Output, o Options) *Printer {
	if o.Location == nil {
		o.Location = time.Local
	}
	p := &Printer{
		out:       out,
		w:         bufio.NewWriterSize(out, bufferBytes),
		opts:      o,
		width:     out.Width,
		resources: 11,
		names:     14,
	}
	if o.Wide {
		p.width = 0
	}
	if p.width == 0 || p.width >= 100 {
		p.resources, p.names = 14, 28
	}
	return p
}

// Print prints one event.
func (p *Printer) Print(e *consume.Event) error {
	p.buf = p.buf[:0]
	var err error
	switch {
	case p.opts.Format != nil:
		p.buf, err = p.opts.Format(e)
	case p.opts.View == JSON:
		err = p.printJSON(e)
	case p.opts.View == YAML:
		err = p.printYAML(e)
	case p.folds() && e.Op == consume.Read:
		p.countRead(e)
		return nil
	case p.folds() && e.Type == consume.TypeSnapshotStarted: // completed repeats its content
		return nil
	default:
		p.putCountedReads()
		p.putEvent(e)
	}
	if err != nil {
		return fmt.Errorf("show %s: %w", e.ID, err)
	}
	return p.write()
}

// write writes the text of one event.
func (p *Printer) write() error {
	if len(p.buf) > p.w.Available() { // do not divide a character
		if err := p.w.Flush(); err != nil {
			return err
		}
	}
	_, err := p.w.Write(p.buf)
	return err
}

// Flush writes the buffered text. Reads that are still being counted are not in it.
func (p *Printer) Flush() error {
	if p.out.Size != nil && !p.opts.Wide { // the terminal may have been resized
		if columns, _ := p.out.Size(); columns > 0 {
			p.width = columns
		}
	}
	return p.w.Flush()
}

// IsCounting reports whether there are counted reads that were not shown.
func (p *Printer) IsCounting() bool { return len(p.reads) > 0 }

// Finish shows the counted reads, and flushes.
func (p *Printer) Finish() error {
	p.buf = p.buf[:0]
	p.putCountedReads()
	if _, err := p.w.Write(p.buf); err != nil {
		return err
	}
	return p.Flush()
}

func (p *Printer) printJSON(e *consume.Event) error {
	raw, err := e.MarshalJSON()
	if err != nil {
		return err
	}
	if bytes.ContainsAny(raw, "\n\r") { // one line each, whatever the producer wrote
		var b bytes.Buffer
		if err := compact(&b, raw); err != nil {
			return err
		}
		raw = b.Bytes()
	}
	p.buf = append(append(p.buf, raw...), '\n')
	return nil
}

func (p *Printer) printYAML(e *consume.Event) error {
	raw, err := e.MarshalJSON()
	if err != nil {
		return err
	}
	p.documents++
	if p.documents > 1 {
		p.buf = append(p.buf, "---\n"...)
	}
	p.buf = appendBlock(p.buf, trim(raw), 0, 0)
	return nil
}

// folds reports whether reads are counted instead of shown.
func (p *Printer) folds() bool { return !p.opts.Reads && p.width > 0 }

func (p *Printer) countRead(e *consume.Event) {
	p.readsTime = e.Time
	name := shownResource(e)
	for k := range p.reads {
		if p.reads[k].resource == name {
			p.reads[k].n++
			return
		}
	}
	p.reads = append(p.reads, readCount{name, 1})
}

// putCountedReads appends a line with the counted reads.
func (p *Printer) putCountedReads() {
	if len(p.reads) == 0 {
		return
	}
	text := p.scratch[:0]
	for k, r := range p.reads {
		if k > 0 {
			text = append(text, ", "...)
		}
		text = append(append(appendCount(text, r.n), ' '), clean(r.resource)...)
	}
	p.scratch = text
	p.reads = p.reads[:0]
	p.beginLine(p.readsTime, consume.Read, "read", terminal.Dim)
	p.put(terminal.Dim, string(text))
	p.endLine()
}

// beginLine starts a line with the time and the kind of event.
func (p *Printer) beginLine(t time.Time, op consume.Op, word string, style terminal.Style) {
	t = t.In(p.opts.Location)
	p.from = len(p.buf)
	p.used = 0
	p.full = false
	switch {
	case p.opts.Timeless:
	case p.opts.Wide:
		p.put(terminal.Dim, t.Format("2006-01-02T15:04:05.000Z07:00"))
	case p.width == 0:
		p.put(terminal.Dim, t.Format("2006-01-02T15:04:05Z07:00"))
	default:
		if day := t.Format("2006-01-02 MST"); day != p.day { // lines have only the time of day
			p.day = day
			p.put(terminal.Dim, day)
			p.endLine()
		}
		p.put(terminal.Dim, t.Format("15:04:05"))
	}
	if !p.opts.Timeless {
		p.putSpace(1)
	}
	if style == terminal.Plain {
		style = opStyle(op)
	}
	p.putColumn(style, word, 8)
}

// put appends text, which must be clean, to the line, as far as it fits.
func (p *Printer) put(style terminal.Style, text string) {
	if p.full || text == "" {
		return
	}
	n := width(text)
	if p.width > 0 && p.used+n > p.width {
		p.full = true
		if p.used >= p.width { // cut would return all of the text
			return
		}
		text = cut(text, p.width-p.used)
		n = width(text)
	}
	p.used += n
	p.buf = p.out.Append(p.buf, style, text)
}

// room returns the number of remaining columns, at least 0; without a limit, a very large number.
func (p *Printer) room() int {
	if p.width > 0 {
		return max(p.width-p.used, 0)
	}
	return 1 << 30
}

func (p *Printer) putSpace(n int) {
	n = min(n, p.room())
	if n > 0 && !p.full {
		p.buf = appendSpaces(p.buf, n)
		p.used += n
	}
}

// putColumn appends text, padded to columns, and a space.
func (p *Printer) putColumn(style terminal.Style, text string, columns int) {
	p.put(style, text)
	p.putSpace(columns - width(text))
	p.putSpace(1)
}

// endLine ends the line, without trailing spaces.
func (p *Printer) endLine() {
	line := bytes.TrimRight(p.buf[p.from:], " ")
	p.buf = append(p.buf[:p.from+len(line)], '\n')
	p.from = len(p.buf)
	p.used = 0
	p.full = false
}

// compact writes raw without space between its tokens; strings are unchanged.
func compact(dst io.Writer, raw []byte) error {
	inString := false
	from := 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == '\n' || c == '\r' || c == '\t' || c == ' '):
			if _, err := dst.Write(raw[from:i]); err != nil {
				return err
			}
			from = i + 1
		}
	}
	_, err := dst.Write(raw[from:])
	return err
}
