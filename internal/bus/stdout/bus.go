package stdout

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// maxLine is the largest buffer that is reused for the next line.
const maxLine = 64 << 10

// Bus implements publish.Bus. It has no dead letters: it refuses only events that are not JSON.
type Bus struct {
	w     io.Writer
	fence *publish.Fencing

	inbox *publish.Inbox[*publish.Event]

	mu      sync.Mutex
	waiting []*publish.Event // from the inbox, oldest first
	writing *publish.Event   // the goroutine that sets it to nil ends it; nil: none
	closed  bool
}

// New returns a bus that writes to w. The fence is checked before each line; nil permits
// everything.
func New(w io.Writer, fence publish.Fence) *Bus {
	return &Bus{w: w, fence: publish.NewFencing(fence), inbox: publish.NewInbox[*publish.Event]()}
}

// Publish implements publish.Bus.
func (b *Bus) Publish(e *publish.Event) {
	if !b.inbox.Put(e) {
		e.Done(publish.ErrClosed)
	}
}

// Ready implements publish.Bus. It does not detect a stream that accepts no lines: that shows in
// the agent's queue.
func (b *Bus) Ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return publish.ErrClosed
	}
	return nil
}

// Stream implements relay.Limited.
func (*Bus) Stream() bool { return true }

// InFlight implements relay.Limited: a relay writes lines in the order of the records.
func (*Bus) InFlight() int { return 1 }

// Run implements publish.Bus.
func (b *Bus) Run(ctx context.Context) error {
	go b.write(ctx) // it ends with Run, or after a call of Write that cannot be interrupted
	<-ctx.Done()
	b.mu.Lock()
	b.closed = true
	left := append(b.waiting, b.inbox.Close()...)
	if b.writing != nil {
		left = append([]*publish.Event{b.writing}, left...)
	}
	b.waiting, b.writing = nil, nil
	b.mu.Unlock()
	for _, e := range left {
		e.Done(publish.ErrClosed)
	}
	return nil
}

// write writes events until ctx ends.
func (b *Bus) write(ctx context.Context) {
	var line []byte
	var broken error // the error of the stream, which is final
	checked := false // the end of the stream, before the first line
	for ctx.Err() == nil {
		var err error
		var ok bool
		line, ok, err = b.next(line[:0])
		if !ok {
			select {
			case <-b.inbox.Ready:
			case <-ctx.Done():
			}
			continue
		}
		if err == nil {
			err = broken
		}
		if err == nil {
			err = b.fence.Pass(ctx)
		}
		if err == nil {
			if !checked && endsInsideLine(b.w) {
				line = append([]byte{'\n'}, line...)
			}
			checked = true
			_, broken = b.w.Write(line)
			err = broken
		}
		b.end(err)
		if cap(line) > maxLine {
			line = nil
		}
	}
}

// endsInsideLine reports whether w is a file that an earlier run may have left with a partial last
// line. If its end cannot be read, the result is true: readers skip an empty line.
func endsInsideLine(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	r, err := os.Open(f.Name()) // f itself, opened by a shell for >>, cannot be read; /dev/stdout can on Linux
	if err != nil {
		return true
	}
	defer func() { _ = r.Close() }()
	last := make([]byte, 1)
	_, err = r.ReadAt(last, info.Size()-1)
	return err != nil || last[0] != '\n'
}

// next returns the line of the oldest event. It copies the body, because Run may end the event
// during the write.
func (b *Bus) next(line []byte) (_ []byte, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.waiting = b.inbox.Take(nil)
	}
	if len(b.waiting) == 0 {
		return line, false, nil
	}
	e := b.waiting[0]
	b.waiting[0] = nil
	b.waiting = b.waiting[1:]
	b.writing = e
	line = append(line, e.Body...)
	if bytes.IndexByte(line, '\n') >= 0 { // always between tokens: JSON strings contain none
		var compact bytes.Buffer
		if err := json.Compact(&compact, e.Body); err != nil {
			return line, true, fmt.Errorf("%w: %w", publish.ErrRefused, err)
		}
		line = compact.Bytes()
	}
	return append(line, '\n'), true, nil
}

// end ends the event whose line was written, unless Run has done so.
func (b *Bus) end(err error) {
	b.mu.Lock()
	e := b.writing
	b.writing = nil
	b.mu.Unlock()
	if e == nil {
		return
	}
	if err != nil {
		err = fmt.Errorf("publish %s to stdout: %w", e.ID, err)
	}
	e.Done(err)
}

// Config has no settings.
type Config struct{}

// Driver returns the driver of the bus "stdout".
func Driver() *driver.Driver {
	return &driver.Driver{
		Name:    "stdout",
		Schemes: []string{"stdout"},
		URL:     "stdout:",
		Stdout:  true,
		Default: func() driver.Config { return new(Config) },
	}
}

// SetURL implements driver.Config.
func (*Config) SetURL(string) error { return nil }

// Validate implements driver.Config.
func (*Config) Validate(*field.Path, *driver.Facts) field.ErrorList { return nil }

// Summary implements driver.Config.
func (*Config) Summary() driver.Summary {
	return driver.Summary{
		Kind:     "stdout",
		Text:     "standard output, as JSON lines",
		Log:      "standard output",
		Identity: "stdout",
	}
}

// Open implements driver.Config.
func (*Config) Open(e *driver.Env) (publish.Bus, error) { return New(e.Stdout, e.Fence), nil }
