package terminal

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"
)

// lastWrite limits the time that a shutdown waits for the reader of a log line.
const lastWrite = time.Second

// errNotTaken is the error for an abandoned line.
var errNotTaken = errors.New("standard error accepts no output")

// LogWriter writes to a pipe or a terminal, whose reader may have stopped. Until ctx ends it waits
// for the reader. After that, it abandons a line that is not read within lastWrite, and all others
// until that one is read: the process ends without them.
//
// It is not safe for concurrent use.
type LogWriter struct {
	ctx     context.Context //nolint:containedctx // io.Writer has none
	w       io.Writer
	written chan error // has room for one
	pending bool       // a line was abandoned, and its Write has not returned
}

// NewLogWriter returns a LogWriter to w.
func NewLogWriter(ctx context.Context, w io.Writer) *LogWriter {
	return &LogWriter{ctx: ctx, w: w, written: make(chan error, 1)}
}

// Write implements io.Writer.
func (l *LogWriter) Write(p []byte) (int, error) {
	if l.pending {
		select {
		case <-l.written: //nolint:errcheck // of a line that was given up
			l.pending = false
		default:
			return 0, errNotTaken
		}
	}
	line := slices.Clone(p) // the caller reuses p
	go func() {             // outlives the call if the write does not return
		_, err := l.w.Write(line)
		l.written <- err
	}()
	select {
	case err := <-l.written:
		return len(p), err
	case <-l.ctx.Done():
	}
	over := time.NewTimer(lastWrite)
	defer over.Stop()
	select {
	case err := <-l.written:
		return len(p), err
	case <-over.C:
		l.pending = true
		return 0, errNotTaken
	}
}
