package object

import (
	"errors"
	"fmt"
	"io"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// Frames reads the frames of a watch stream: {"type":"ADDED","object":{…}}, one after another, in
// any layout and however the reader splits them. It belongs to one goroutine.
//
// An API server writes one frame per line. After the first such frame, the end of the line counts
// as the end of the frame, which costs a thirtieth of matching brackets. The object is the part
// between "object": and the last brace. If another layout only looks like this one, Scan rejects
// the object: the result is an error, never another object.
type Frames struct {
	src     valueReader
	lines   bool // the previous frame was one line in the usual layout
	stack   jsonscan.Nesting
	scratch []byte
}

// NewFrames returns a reader of the frames in r. A frame of more than max bytes is an ErrTooLarge.
func NewFrames(r io.Reader, max int) *Frames {
	return &Frames{src: valueReader{r: r, max: max}}
}

// Next returns the type of the next frame (ADDED, MODIFIED, DELETED, BOOKMARK or ERROR) and its
// object unchanged. Both are valid until the next call. Scan must check the inside of the object.
// The error is io.EOF if the stream ends between frames, and io.ErrUnexpectedEOF if it ends inside
// one; all later calls fail too.
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
		typ, object = usual(line)
		if typ != nil && len(line) <= f.src.max {
			f.src.take(len(line))
			return typ, object, nil
		}
	}
	frame, err := f.src.value()
	if err != nil {
		return nil, nil, err
	}
	// The finder has seen only one bracketed value directly inside the frame, and it ends where the
	// object would.
	typ, object = usual(frame)
	if typ != nil && f.src.find.inner == 1 && f.src.find.innerEnd == len(frame)-1 {
		f.lines = f.src.atNewline()
		return typ, object, nil
	}
	f.lines = false
	return f.unusual(frame)
}

// Ready reports whether Next will return a frame without reading from the stream. It may report
// false although Next would.
func (f *Frames) Ready() bool {
	if !f.lines || !f.src.skipSpace() {
		return false
	}
	line := f.src.bufferedLine()
	typ, _ := usual(line)
	return typ != nil && len(line) <= f.src.max
}

// usual splits a frame in the layout of the API server. typ is nil if the layout differs.
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

// unusual splits a frame in any other layout.
func (f *Frames) unusual(frame []byte) (typ, object []byte, err error) {
	err = eachMember(&f.stack, frame, func(name, value []byte) error {
		switch string(name) {
		case "type":
			if value[0] != '"' {
				return errors.New("type is not a string")
			}
			f.scratch = jsonscan.AppendUnescaped(f.scratch[:0], value[1:len(value)-1])
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

// VersionOf returns metadata.resourceVersion of the JSON of an object, "" if it has none. It checks
// the syntax of all of raw, as Scan does, at a fraction of the cost: a bookmark has nothing else.
func VersionOf(raw []byte) (version string, err error) {
	var stack jsonscan.Nesting
	if len(raw) == 0 || raw[0] != '{' {
		return "", errors.New("is not an object")
	}
	err = eachMember(&stack, raw, func(name, value []byte) error {
		if string(name) != "metadata" || value[0] != '{' {
			return nil
		}
		version = ""
		var inner jsonscan.Nesting
		return eachMember(&inner, value, func(name, value []byte) (err error) {
			if string(name) == "resourceVersion" {
				version, err = unquoted(value)
			}
			return err
		})
	})
	return version, err
}

// eachMember calls do with the unescaped name and the JSON of each member of the object in b.
func eachMember(stack *jsonscan.Nesting, b []byte, do func(name, value []byte) error) error {
	var scratch []byte
	i := jsonscan.SkipSpace(b, 1)
	for i < len(b) && b[i] != '}' {
		start := i
		if i >= len(b) || b[i] != '"' {
			return jsonscan.ErrorAt(b, ^i)
		}
		i = jsonscan.SkipString(b, i+1)
		if i < 0 {
			return jsonscan.ErrorAt(b, i)
		}
		name := b[start+1 : i-1]
		if jsonscan.Escaped(name) {
			scratch = jsonscan.AppendUnescaped(scratch[:0], name)
			name = scratch
		}
		i = jsonscan.SkipColon(b, i)
		if i < 0 {
			return jsonscan.ErrorAt(b, i)
		}
		start = i
		i = stack.Skip(b, i, 1)
		if i < 0 {
			return jsonscan.ErrorAt(b, i)
		}
		if err := do(name, b[start:i:i]); err != nil {
			return err
		}
		i = jsonscan.SkipSpace(b, i)
		if i >= len(b) || b[i] == '}' {
			break
		}
		if b[i] != ',' {
			return jsonscan.ErrorAt(b, ^i)
		}
		i = jsonscan.SkipSpace(b, i+1)
		if i < len(b) && b[i] == '}' {
			return jsonscan.ErrorAt(b, ^i)
		}
	}
	switch {
	case i >= len(b):
		return jsonscan.ErrTruncated
	case i != len(b)-1:
		return jsonscan.ErrorAt(b, ^(i + 1))
	}
	return nil
}
