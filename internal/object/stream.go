package object

import (
	"errors"
	"fmt"
	"io"
)

// Frames reads the frames of a watch stream: {"type":"ADDED","object":{…}}, one after another, however they are laid
// out and wherever the reader splits them. It belongs to one goroutine.
//
// An API server writes one frame per line. Once a stream has begun so, the end of the line is taken for the end of the
// frame, which costs a thirtieth of matching brackets, and what is between "object": and the last brace for the object.
// Should a line look so and not be so, Scan refuses the object: it is an error, never another object.
type Frames struct {
	src     source
	lines   bool // the frame before was one line in the usual layout
	stack   nesting
	scratch []byte
}

// NewFrames reads from r frames of at most max bytes. A longer one is an ErrTooLarge.
func NewFrames(r io.Reader, max int) *Frames {
	return &Frames{src: source{r: r, max: max}}
}

// Next is the type of the next frame (ADDED, MODIFIED, DELETED, BOOKMARK or ERROR) and its object as it came. Both are
// valid until the next call. The inside of the object has not been checked: Scan does. The error is io.EOF where the
// stream ends between frames, io.ErrUnexpectedEOF where it ends inside one; either way no further call helps.
func (f *Frames) Next() (typ, object []byte, err error) {
	c, err := f.src.peek()
	if err != nil {
		return nil, nil, err
	}
	if c != '{' {
		return nil, nil, f.src.unexpected("where a watch frame begins")
	}
	if f.lines {
		line := f.src.line()
		if typ, object = usual(line); typ != nil && len(line) <= f.src.max {
			f.src.take(len(line))
			return typ, object, nil
		}
	}
	frame, err := f.src.value()
	if err != nil {
		return nil, nil, err
	}
	// The finder has seen but one bracketed value directly inside the frame, ending where the object would.
	typ, object = usual(frame)
	if typ != nil && f.src.find.inner == 1 && f.src.find.innerEnd == len(frame)-1 {
		f.lines = f.src.atNewline()
		return typ, object, nil
	}
	f.lines = false
	return f.unusual(frame)
}

// Ready reports whether Next will return a frame without reading from the stream. It may report false although Next would.
func (f *Frames) Ready() bool {
	if !f.lines || !f.src.skipSpace() {
		return false
	}
	line := f.src.bufferedLine()
	typ, _ := usual(line)
	return typ != nil && len(line) <= f.src.max
}

// usual takes apart a frame as the API server writes it. typ is nil where it does not look so.
func usual(frame []byte) (typ, object []byte) {
	const head, middle = `{"type":"`, `","object":`
	if len(frame) < len(head) || string(frame[:len(head)]) != head {
		return nil, nil
	}
	rest := frame[len(head):]
	n := 0
	for n < len(rest) && rest[n] >= 'A' && rest[n] <= 'Z' {
		n++
	}
	if n == 0 || len(rest) < n+len(middle) || string(rest[n:n+len(middle)]) != middle {
		return nil, nil
	}
	object = rest[n+len(middle):]
	end := len(object) - 1
	if end < 2 || object[0] != '{' || object[end-1] != '}' || object[end] != '}' {
		return nil, nil
	}
	return rest[:n:n], object[:end:end]
}

// unusual takes apart any other frame.
func (f *Frames) unusual(frame []byte) (typ, object []byte, err error) {
	err = eachMember(&f.stack, frame, func(name, value []byte) error {
		switch string(name) {
		case "type":
			if value[0] != '"' {
				return errors.New("type is not a string")
			}
			f.scratch = AppendUnescaped(f.scratch[:0], value[1:len(value)-1])
			typ = f.scratch
		case "object":
			object = value
		}
		return nil
	})
	switch {
	case err != nil:
	case len(typ) == 0:
		err = errors.New("no type")
	case object == nil:
		err = errors.New("no object")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("watch frame: %w", err)
	}
	return typ, object, nil
}

// eachMember calls do with the unescaped name and the JSON of each member of the object that b is.
func eachMember(stack *nesting, b []byte, do func(name, value []byte) error) error {
	var scratch []byte
	i := skipSpace(b, 1)
	for i < len(b) && b[i] != '}' {
		start := i
		if i >= len(b) || b[i] != '"' {
			return syntaxError(b, ^i)
		}
		if i = skipString(b, i+1); i < 0 {
			return syntaxError(b, i)
		}
		name := b[start+1 : i-1]
		if escaped(name) {
			scratch = AppendUnescaped(scratch[:0], name)
			name = scratch
		}
		if i = skipColon(b, i); i < 0 {
			return syntaxError(b, i)
		}
		start = i
		if i = stack.skip(b, i, 1); i < 0 {
			return syntaxError(b, i)
		}
		if err := do(name, b[start:i:i]); err != nil {
			return err
		}
		i = skipSpace(b, i)
		if i >= len(b) || b[i] == '}' {
			break
		}
		if b[i] != ',' {
			return syntaxError(b, ^i)
		}
		if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
			return syntaxError(b, ^i)
		}
	}
	switch {
	case i >= len(b):
		return ErrTruncated
	case i != len(b)-1:
		return syntaxError(b, ^(i + 1))
	}
	return nil
}
