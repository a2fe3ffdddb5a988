package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// Stdout publishes structured events as JSON lines. It takes each line that the writer took for acknowledged.
type Stdout struct {
	fence *Fencing
	w     io.Writer

	// turn holds an element while a line is written, also after the call that wrote it has returned. Its holder alone uses line and err.
	turn chan struct{}
	line []byte
	err  error // of the writer; it stays
}

// NewStdout returns a publisher that writes to w.
func NewStdout(w io.Writer) *Stdout { return &Stdout{w: w, turn: make(chan struct{}, 1)} }

// Behind has f asked before each line. It returns s, and is called before Publish.
func (s *Stdout) Behind(f Fence) *Stdout {
	s.fence = NewFencing(f)
	return s
}

// Publish writes ev as one line, in one call of Write. An error of the writer (the reader of a pipe has gone, the disk is
// full) is final: half a line may have been written, and every further call fails.
//
// When ctx ends, Publish returns although the reader of a pipe, or a stopped terminal, does not take the line. The call of Write stays
// behind, because nothing can interrupt it, and no other line is written before it returns.
func (s *Stdout) Publish(ctx context.Context, ev *encode.Event) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.fence.Pass(ctx); err != nil {
			return fmt.Errorf("publish %s: %w", ev.ID, err)
		}
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.compose(ev); err != nil {
			<-s.turn
			return err
		}
		written := make(chan error, 1)
		go func() { // it outlives the call where the write does not return
			err := s.write()
			<-s.turn
			written <- err
		}()
		select {
		case err := <-written:
			if err != ErrShut { //nolint:errorlint // it is not wrapped
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// compose makes the line of ev. The caller holds the turn.
func (s *Stdout) compose(ev *encode.Event) error {
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
	return nil
}

// write writes the line, unless the fence was shut meanwhile: then it returns errShut. The caller holds the turn.
func (s *Stdout) write() error {
	if s.fence.Shut() {
		return ErrShut
	}
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
