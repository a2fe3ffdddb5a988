package consume

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds a line, in bytes. An event holds an object three times at most (before, after, patch), and etcd's default
// limit for one is 1.5 MiB.
const maxLine = 64 << 20

// Lines reads events from lines of JSON, as `kubecdc run --bus stdout:` writes them. It belongs to one goroutine.
type Lines struct {
	r    *bufio.Reader
	line int
}

// NewLines reads from r.
func NewLines(r io.Reader) *Lines { return &Lines{r: bufio.NewReaderSize(r, 64<<10)} }

// Next is the next event. Its error is io.EOF at the end, and a *RecordError where a line cannot be read: the next call goes
// on behind it. Others are those of reading, which end it. ctx is looked at between reads: to end one that blocks, close
// what it reads from.
func (l *Lines) Next(ctx context.Context) (*Event, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		line, err := l.read()
		switch line = bytes.TrimSpace(line); {
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case errors.Is(err, errLong):
			return nil, l.wrong(err)
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", l.line, err)
		case len(line) == 0:
			continue
		}
		e, err := Parse(line)
		if err != nil {
			return nil, l.wrong(err)
		}
		return e, nil
	}
}

func (l *Lines) wrong(err error) error {
	return &RecordError{Where: fmt.Sprintf("line %d", l.line), Err: err}
}

var errLong = fmt.Errorf("longer than %d MiB", maxLine>>20)

// read is the next line, in memory of its own. The last one may lack its end.
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

// skipLine reads to the end of a line of which a part has been read with err.
func (l *Lines) skipLine(err error) error {
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.r.ReadSlice('\n')
	}
	if errors.Is(err, io.EOF) {
		return nil // the next call says so
	}
	return err
}
