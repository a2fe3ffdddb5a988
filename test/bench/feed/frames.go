package feed

import (
	"net/http"
	"sync/atomic"
)

// frames collects watch frames and writes them many at a time: like an API server, which flushes
// when no further frame is ready.
type frames struct {
	w       http.ResponseWriter
	flush   func() error
	buf     []byte // not yet written
	updates int64  // in buf
	count   *atomic.Int64
}

// add takes back the buffer, which has one more frame.
func (f *frames) add(buf []byte) error {
	f.buf = buf
	if len(f.buf) < batch {
		return nil
	}
	return f.write()
}

func (f *frames) write() error {
	_, err := f.w.Write(f.buf)
	f.count.Add(f.updates)
	f.buf, f.updates = f.buf[:0], 0
	return err
}

// send writes the collected frames and flushes them to the client. It also sends the headers.
func (f *frames) send() error {
	if len(f.buf) > 0 {
		if err := f.write(); err != nil {
			return err
		}
	}
	return f.flush()
}
