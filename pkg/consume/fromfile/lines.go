package fromfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// maxLine limits a line, in bytes. An event has an object at most three times (before, after,
// patch), and etcd's default limit for an object is 1.5 MiB.
const maxLine = 64 << 20

// File is a Source of JSON lines, as `kubecdc run --bus stdout:` writes them. Its readers do not
// follow the file: Live and Beginning are the same, and Next always returns io.EOF at the end.
// Since compares the times of the events.
type File struct{ Path string }

// Traits implements consume.Source. A file is read from its beginning.
func (f *File) Traits() consume.Traits { return consume.Traits{OneLog: true} }

// Read opens the file.
func (f *File) Read(_ context.Context, q consume.Query) (consume.Reader, error) {
	opened, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	l := NewLines(f.Path, opened, q)
	l.file = opened
	return l, nil
}

// Lines reads events from lines of JSON. It implements consume.Reader.
type Lines struct {
	name string
	r    *bufio.Reader
	file *os.File // nil: the caller closes r
	line int
	end  bool // has been reached

	since time.Time // earlier events are skipped
	skip  int       // number of lines to skip
}

// NewLines reads from r as a File does, but leaves it open. name is that of the log; "": errors
// name the line alone.
func NewLines(name string, r io.Reader, q consume.Query) *Lines {
	l := &Lines{name: name, r: bufio.NewReaderSize(r, 64<<10), since: q.Start.Time()}
	for _, p := range q.Start.Positions() {
		if p.Name == name {
			l.skip = int(p.Next) - 1
		}
	}
	return l
}

// Next implements consume.Reader. Errors of the underlying reader are final. Next checks ctx
// between reads: to end a blocked one, close the underlying reader.
func (l *Lines) Next(ctx context.Context) (*consume.Event, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		line, err := l.read()
		if errors.Is(err, io.EOF) {
			l.line-- // there is none
			if l.line < l.skip && l.file != nil {
				return nil, l.restart()
			}
			l.end = true
			return nil, io.EOF
		}
		switch line = bytes.TrimSpace(line); {
		case l.line <= l.skip:
			continue
		case errors.Is(err, errLong):
			return nil, l.wrong(err)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", l.where(), err)
		case len(line) == 0:
			continue
		}
		e, err := consume.Parse(line)
		if err != nil {
			return nil, l.wrong(err)
		}
		if e.Time.Before(l.since) {
			continue
		}
		e.Position = l.position()
		return e, nil
	}
}

// restart returns to the beginning of a file that ends before the line at which reading should
// continue: it is another file.
func (l *Lines) restart() error {
	missed := &consume.MissedError{
		Log:       l.position().Log,
		From:      uint64(l.skip) + 1,
		To:        uint64(l.line),
		Recreated: true,
	}
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	l.r.Reset(l.file)
	l.line, l.skip = 0, 0
	return missed
}

func (l *Lines) position() consume.Position {
	return consume.Position{Log: consume.Log{Name: l.name}, Next: uint64(max(l.line, l.skip)) + 1}
}

// Positions implements consume.Reader. Position.Next is a line number.
func (l *Lines) Positions() []consume.Position { return []consume.Position{l.position()} }

// CaughtUp implements consume.Reader.
func (l *Lines) CaughtUp() bool { return l.end }

// Whole implements consume.Reader. A file has no store.
func (l *Lines) Whole(_ context.Context, e *consume.Event) (*consume.Event, error) {
	return consume.WithoutStore(e)
}

// Close implements consume.Reader.
func (l *Lines) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

func (l *Lines) wrong(err error) error {
	return &consume.RecordError{Position: l.position(), Where: l.where(), Err: err}
}

// where names the last line that was read.
func (l *Lines) where() string {
	if l.name == "" {
		return fmt.Sprintf("line %d", l.line)
	}
	return fmt.Sprintf("%s: line %d", l.name, l.line)
}

var errLong = fmt.Errorf("longer than %d MiB", maxLine>>20)

// read returns the next line, in memory of its own. The last one may have no newline.
func (l *Lines) read() ([]byte, error) {
	l.line++
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			if err := l.skipLine(err); err != nil {
				return nil, err
			}
			return nil, errLong
		}
		line = append(line, part...)
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// skipLine reads to the end of a line that was partly read with err.
func (l *Lines) skipLine(err error) error {
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.r.ReadSlice('\n')
	}
	if errors.Is(err, io.EOF) {
		return nil // the next call says so
	}
	return err
}
