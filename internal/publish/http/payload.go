package http

import (
	"bytes"
	"io"
	"sync"
)

// payload is the body of a request: the bodies of its events, without a copy. After RoundTrip has returned, the transport may still read
// it, but a finished event is reused: detach ends the reading. Otherwise a receiver might get the beginning of one event and the end of
// another.
type payload struct {
	mu    sync.Mutex
	parts [][]byte // nil after detach
	size  int
}

func (p *payload) add(part []byte) {
	p.parts = append(p.parts, part)
	p.size += len(part)
}

// contains reports whether one of the events contains text.
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
	part int // index of the current part
	read int // bytes already read of that part
	left int // bytes left of all parts
}

func (r *payloadReader) Read(b []byte) (n int, err error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	switch {
	case r.left == 0:
		return 0, io.EOF // also after detach: net/http reads once more after the last byte
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
