package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// Stdout publishes structured events as JSON lines. It takes each line that the writer took for acknowledged.
type Stdout struct {
	fence *fencing

	mu   sync.Mutex
	w    io.Writer
	line []byte
	err  error // of the writer; it stays
}

// NewStdout returns a publisher that writes to w.
func NewStdout(w io.Writer) *Stdout { return &Stdout{w: w} }

// Behind has f asked before each line. It returns s, and is called before Publish.
func (s *Stdout) Behind(f Fence) *Stdout {
	s.fence = newFencing(f)
	return s
}

// Publish writes ev as one line, in one call of Write, which ctx does not interrupt. An error of the writer (the reader
// of a pipe has gone, the disk is full) is final: half a line may have been written, and every further call fails.
func (s *Stdout) Publish(ctx context.Context, ev *encode.Event) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.fence.pass(ctx); err != nil {
			return fmt.Errorf("publish %s: %w", ev.ID, err)
		}
		if err := s.write(ev); err != errShut { //nolint:errorlint // it is not wrapped
			return err
		}
	}
}

// write is one attempt, errShut: the fence was shut while others wrote.
func (s *Stdout) write(ev *encode.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fence.shut() {
		return errShut
	}
	if s.err != nil {
		return s.err
	}
	s.line = append(s.line[:0], ev.Body...)
	if bytes.IndexByte(s.line, '\n') >= 0 { // only ever between tokens: JSON strings hold none
		var b bytes.Buffer
		if err := json.Compact(&b, ev.Body); err != nil {
			return fmt.Errorf("publish %s: %w: %w", ev.ID, ErrRefused, err)
		}
		s.line = b.Bytes()
	}
	s.line = append(s.line, '\n')
	if _, err := s.w.Write(s.line); err != nil {
		s.err = fmt.Errorf("publish to stdout: %w", err)
	}
	if cap(s.line) > maxLine {
		s.line = nil
	}
	return s.err
}

// maxLine is how large a buffer is kept for the next line.
const maxLine = 64 << 10
