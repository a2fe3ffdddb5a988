package object

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge is returned for a value in a stream that is longer than the limit.
var ErrTooLarge = errors.New("JSON value too large")

const (
	// bufferMin is what a silent watch holds; there may be thousands of them.
	bufferMin = 8 << 10
	// bufferKeep is what a stream may keep without having to show that it needs it.
	bufferKeep = 64 << 10
	// bufferGiant is let go as soon as the value that needed it is done: the next one may be hours away.
	bufferGiant = 256 << 10
)

// source reads JSON values one after another through one buffer, which grows to hold the value at hand and shrinks
// again behind it.
type source struct {
	r     io.Reader
	max   int
	buf   []byte
	start int // buf[start:end] has been read and not been taken
	end   int
	eol   int  // buf[start:eol] has no newline
	need  int  // about the size of late values
	full  bool // the last read took all the room there was: more is waiting
	err   error
	find  finder
}

// peek is the first byte that is not white space, without taking it. It may move what is in the buffer.
func (s *source) peek() (byte, error) {
	for !s.skipSpace() {
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	return s.buf[s.start], nil
}

// skipSpace takes white space, and reports whether anything else has been read.
func (s *source) skipSpace() bool {
	s.start += skipSpace(s.buf[s.start:s.end], 0)
	return s.start < s.end
}

// value takes the value that starts at the next byte (peek). It is valid until the next call of any method. Of an
// object, an array or a string it has found the end only, not checked the inside.
func (s *source) value() ([]byte, error) {
	s.find = finder{}
	for {
		window := s.buf[s.start:s.end]
		n := s.find.end(window)
		if n < 0 && errors.Is(s.err, io.EOF) && s.find.scalar {
			n = len(window) // nothing but the end of the input ends it
		}
		if n > s.max {
			return nil, s.tooLarge()
		}
		if n >= 0 {
			s.take(n)
			return window[:n:n], nil
		}
		if err := s.fill(); err != nil && !(errors.Is(err, io.EOF) && s.find.scalar) {
			return nil, inside(err)
		}
	}
}

// take takes the next n bytes, which are one value.
func (s *source) take(n int) {
	s.start += n
	s.need = max(n, s.need-s.need/8)
}

// line is what stands before the next newline, without taking it, nil where the input ends or fails first.
func (s *source) line() []byte {
	for {
		if line := s.bufferedLine(); line != nil || s.fill() != nil {
			return line
		}
	}
}

// bufferedLine is line as far as it has been read, nil: its end has not come yet. It looks at no byte twice.
func (s *source) bufferedLine() []byte {
	from := max(s.start, s.eol)
	n := bytes.IndexByte(s.buf[from:s.end], '\n')
	if n < 0 {
		s.eol = s.end
		return nil
	}
	s.eol = from + n
	return s.buf[s.start:s.eol:s.eol]
}

// atNewline tells whether the next byte has come, and is a newline.
func (s *source) atNewline() bool { return s.start < s.end && s.buf[s.start] == '\n' }

// punctuation takes the next byte if it is c.
func (s *source) punctuation(c byte) (bool, error) {
	got, err := s.peek()
	if err != nil {
		return false, inside(err)
	}
	if got != c {
		return false, nil
	}
	s.start++
	return true, nil
}

// unexpected is the error for the next byte, which must be there.
func (s *source) unexpected(where string) error {
	return fmt.Errorf("JSON syntax: unexpected %q %s", s.buf[s.start], where)
}

func (s *source) tooLarge() error {
	s.err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.max)
	return s.err
}

// inside is what an error of the reader means before the value at hand is complete.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fill reads more. Its error is final.
func (s *source) fill() error {
	if s.err != nil {
		return s.err
	}
	if s.end-s.start >= s.max {
		return s.tooLarge()
	}
	s.room()
	for range 100 {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		s.full = s.end == len(s.buf)
		s.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	s.err = io.ErrNoProgress
	return s.err
}

// room makes room in the buffer to read into.
func (s *source) room() {
	held := s.end - s.start
	if held == 0 {
		s.start, s.end, s.eol = 0, 0, 0
	}
	size := len(s.buf)
	switch {
	case size == 0:
		size = bufferMin
	case held >= size-size/4:
		size *= 2
	case s.full && size < bufferKeep:
		// A stream in a hurry: over HTTP/2 each read of 4 KB or more costs a window update, which is a write to the socket.
		size *= 2
	case held > 0 && size-s.end >= size/2:
		return
	}
	if held <= bufferKeep/2 && (size > bufferGiant || size > bufferKeep && size > 4*s.need) {
		size = max(bufferMin, 2*held, min(bufferKeep, 2*s.need))
	}
	if size != len(s.buf) {
		buf := make([]byte, size)
		copy(buf, s.buf[s.start:s.end])
		s.buf = buf
	} else if s.start > 0 {
		copy(s.buf, s.buf[s.start:s.end])
	}
	s.start, s.end, s.eol = 0, held, max(0, s.eol-s.start)
}

// finder finds where a value ends, and goes on where it left off when more of it has come. It knows strings and
// brackets, nothing else: what is inside is checked by who reads it.
type finder struct {
	at     int // what has been looked at
	depth  int
	quoted bool // inside a string
	slash  bool // … and behind a backslash
	scalar bool // a number or a word: it ends before what cannot be part of it

	inner    int // how many times a value of the outermost object or array has ended with a bracket
	innerEnd int // where the last of them ended
}

// end is where the value at the start of b ends, -1 where it needs more. b begins with what it began with last time.
func (f *finder) end(b []byte) int {
	i := f.at
	for i < len(b) {
		if f.quoted {
			if i = f.unquote(b, i); f.quoted {
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
					return i // of what is around a scalar
				}
				return i + 1
			}
			if f.depth--; f.depth == 1 {
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

// unquote goes on inside a string, and ends behind its quote or, with f.quoted, at the end of b.
func (f *finder) unquote(b []byte, i int) int {
	if f.slash {
		f.slash = false
		i++
	}
	for i < len(b) {
		i = stringStop(b, i)
		if i >= len(b) {
			break
		}
		switch b[i] {
		case '"':
			f.quoted = false
			return i + 1
		case '\\':
			if i++; i >= len(b) {
				f.slash = true
				return i
			}
		}
		i++ // what is escaped, or a control character, which is for others to refuse
	}
	return i
}
