package object

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// ErrTooLarge is returned for a value in a stream that is longer than the limit.
var ErrTooLarge = errors.New("JSON value too large")

const (
	// bufferMin is the buffer of an idle watch; there may be thousands of them.
	bufferMin = 8 << 10
	// bufferKeep is the size that a stream may keep although its values are small.
	bufferKeep = 64 << 10
	// bufferGiant is the size above which a buffer is released after the value: the next such value
	// may be hours away.
	bufferGiant = 256 << 10
)

// valueReader reads one JSON value after another through one buffer, which grows to hold the
// current value and shrinks again after it.
type valueReader struct {
	r     io.Reader
	max   int
	buf   []byte
	start int // buf[start:end] has been read and not been consumed
	end   int
	eol   int  // buf[start:eol] has no newline
	need  int  // the approximate size of recent values
	full  bool // the last read filled the buffer: more data is waiting
	err   error
	find  finder
}

// peek returns the first byte that is not white space, without consuming it. It may move the
// content of the buffer.
func (r *valueReader) peek() (byte, error) {
	for !r.skipSpace() {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	return r.buf[r.start], nil
}

// skipSpace consumes white space, and reports whether anything else has been read.
func (r *valueReader) skipSpace() bool {
	r.start += jsonscan.SkipSpace(r.buf[r.start:r.end], 0)
	return r.start < r.end
}

// value consumes the value that starts at the next byte (peek). The result is valid until the next
// call of any method. For an object, an array or a string, value only finds the end and does not
// check the inside.
func (r *valueReader) value() ([]byte, error) {
	r.find = finder{}
	for {
		window := r.buf[r.start:r.end]
		n := r.find.end(window)
		if n < 0 && errors.Is(r.err, io.EOF) && r.find.scalar {
			n = len(window) // only the end of the input ends the scalar
		}
		if n > r.max {
			return nil, r.tooLarge()
		}
		if n >= 0 {
			r.take(n)
			return window[:n:n], nil
		}
		if err := r.fill(); err != nil && !(errors.Is(err, io.EOF) && r.find.scalar) {
			return nil, inside(err)
		}
	}
}

// take consumes the next n bytes, which are one value.
func (r *valueReader) take(n int) {
	r.start += n
	r.need = max(n, r.need-r.need/8)
}

// line returns the bytes before the next newline without consuming them, nil if the input ends or
// fails first.
func (r *valueReader) line() []byte {
	for {
		if line := r.bufferedLine(); line != nil || r.fill() != nil {
			return line
		}
	}
}

// bufferedLine returns the line if it has been read completely, else nil. It examines each byte
// once.
func (r *valueReader) bufferedLine() []byte {
	from := max(r.start, r.eol)
	n := bytes.IndexByte(r.buf[from:r.end], '\n')
	if n < 0 {
		r.eol = r.end
		return nil
	}
	r.eol = from + n
	return r.buf[r.start:r.eol:r.eol]
}

// atNewline reports whether the next byte has been read, and is a newline.
func (r *valueReader) atNewline() bool { return r.start < r.end && r.buf[r.start] == '\n' }

// punctuation consumes the next byte if it is c.
func (r *valueReader) punctuation(c byte) (bool, error) {
	got, err := r.peek()
	if err != nil {
		return false, inside(err)
	}
	if got != c {
		return false, nil
	}
	r.start++
	return true, nil
}

// unexpected returns the error for the next byte, which must have been read.
func (r *valueReader) unexpected(where string) error {
	return fmt.Errorf("JSON syntax: unexpected %q %s", r.buf[r.start], where)
}

func (r *valueReader) tooLarge() error {
	r.err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, r.max)
	return r.err
}

// inside returns the error for a reader's error that occurs inside a value.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fill reads more data. Its error is final.
func (r *valueReader) fill() error {
	if r.err != nil {
		return r.err
	}
	if r.end-r.start >= r.max {
		return r.tooLarge()
	}
	r.room()
	for range 100 {
		n, err := r.r.Read(r.buf[r.end:])
		r.end += n
		r.full = r.end == len(r.buf)
		r.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	r.err = io.ErrNoProgress
	return r.err
}

// room makes room in the buffer for the next read.
func (r *valueReader) room() {
	held := r.end - r.start
	if held == 0 {
		r.start = 0
		r.end = 0
		r.eol = 0
	}
	size := len(r.buf)
	switch {
	case size == 0:
		size = bufferMin
	case held >= size-size/4:
		size *= 2
	case r.full && size < bufferKeep:
		// The stream has a backlog: over HTTP/2 each read of 4 KB or more costs a window update,
		// which is a write to the socket.
		size *= 2
	case held > 0 && size-r.end >= size/2:
		return
	}
	if held <= bufferKeep/2 && (size > bufferGiant || size > bufferKeep && size > 4*r.need) {
		size = max(bufferMin, 2*held, min(bufferKeep, 2*r.need))
	}
	if size != len(r.buf) {
		buf := make([]byte, size)
		copy(buf, r.buf[r.start:r.end])
		r.buf = buf
	} else if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
	}
	r.eol = max(0, r.eol-r.start)
	r.start = 0
	r.end = held
}

// finder finds the end of a value, and resumes when more input arrives. It distinguishes strings
// and brackets only; the reader of a value checks its inside.
type finder struct {
	at     int // b[:at] has been examined
	depth  int
	quoted bool // inside a string
	slash  bool // … and after a backslash
	scalar bool // a number or a word: it ends before the first byte that cannot be part of it

	inner    int // the number of values directly inside the outermost object or array that ended with a bracket
	innerEnd int // the end of the last of them
}

// end returns the end of the value at the start of b, -1 if it needs more input. b must begin with
// the b of the previous call.
func (f *finder) end(b []byte) int {
	i := f.at
	for i < len(b) {
		if f.quoted {
			i = f.unquote(b, i)
			if f.quoted {
				break
			}
			if f.depth == 0 {
				return i
			}
			continue
		}
		switch c := b[i]; c {
		case '"':
			if f.scalar {
				return i
			}
			f.quoted = true
		case '{', '[':
			if f.scalar {
				return i
			}
			f.depth++
		case '}', ']':
			if f.depth <= 1 {
				if f.depth == 0 {
					return i // belongs to the container of the scalar
				}
				return i + 1
			}
			f.depth--
			if f.depth == 1 {
				f.inner++
				f.innerEnd = i + 1
			}
		default:
			if f.depth == 0 {
				if c == ',' || c == ':' || c <= ' ' {
					return i
				}
				f.scalar = true
			}
		}
		i++
	}
	f.at = i
	return -1
}

// unquote continues inside a string. It ends after the closing quote or, with f.quoted still set,
// at the end of b.
func (f *finder) unquote(b []byte, i int) int {
	if f.slash {
		f.slash = false
		i++
	}
	for i < len(b) {
		i = jsonscan.StringStop(b, i)
		if i >= len(b) {
			break
		}
		switch b[i] {
		case '"':
			f.quoted = false
			return i + 1
		case '\\':
			i++
			if i >= len(b) {
				f.slash = true
				return i
			}
		}
		i++ // an escaped character, or a control character, which a later check rejects
	}
	return i
}
