package http

import (
	"bytes"
	"io"
	"sync"
)

// payload is the body of a request: the bodies of its events, which are not copied. RoundTrip may return while the transport still
// reads it, and an event that is done is used again: detach ends that reading. Else a receiver might get the beginning of one event
// and the end of another.
type payload struct {
	mu    sync.Mutex
	parts [][]byte // nil: detached
	size  int
}

func (p *payload) add(part []byte) {
	p.parts = append(p.parts, part)
	p.size += len(part)
}

// contains reports whether one of the events has a text in it.
func (p *payload) contains(text []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.parts {
		if bytes.Contains(part, text) {
			return true
		}
	}
	return false
}

func (p *payload) detach() {
	p.mu.Lock()
	p.parts = nil
	p.mu.Unlock()
}

func (p *payload) reader() io.ReadCloser { return &payloadReader{p: p, left: p.size} }

type payloadReader struct {
	p    *payload
	part int // that is read next
	read int // of it
	left int // of all parts
}

func (r *payloadReader) Read(b []byte) (n int, err error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	switch {
	case r.left == 0:
		return 0, io.EOF // also when detached: net/http asks once more after the last byte
	case r.p.parts == nil:
		return 0, io.ErrClosedPipe
	}
	for n < len(b) && r.left > 0 {
		part := r.p.parts[r.part]
		copied := copy(b[n:], part[r.read:])
		n, r.read, r.left = n+copied, r.read+copied, r.left-copied
		if r.read == len(part) {
			r.part, r.read = r.part+1, 0
		}
	}
	return n, nil
}

func (*payloadReader) Close() error { return nil }
