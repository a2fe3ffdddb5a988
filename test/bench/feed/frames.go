package feed

import (
	"net/http"
	"sync/atomic"
)

// frames collects watch frames and writes them many at a time: like an API server, which flushes when it has nothing
// further to say.
type frames struct {
	w       http.ResponseWriter
	flush   func() error
	buf     []byte // not yet written
	updates int64  // in buf
	count   *atomic.Int64
}

// add takes the buffer back with a frame more in it.
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

// send writes what there is and flushes it to the client. It also sends the headers.
func (f *frames) send() error {
	if len(f.buf) > 0 {
		if err := f.write(); err != nil {
			return err
		}
	}
	return f.flush()
}
