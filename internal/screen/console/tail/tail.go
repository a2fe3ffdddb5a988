// Package tail shows the events of a source as they arrive. A goroutine reads the source while
// another one shows what it has read.
package tail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	// flushAfter limits the delay of an event while others arrive faster than they can be shown.
	flushAfter = 100 * time.Millisecond
	// countFor is the time without other events after which the count of reads is printed.
	countFor = 250 * time.Millisecond
)

// Tailer shows the selected events of a source.
type Tailer struct {
	Filter  *console.Filter
	Limit   int // 0 for no limit
	Printer *console.Printer
	Stderr  io.Writer

	Shown      int // events so far
	unreadable int // records
}

// received is a result of a source.
type received struct {
	event *consume.Event
	err   error
	last  bool // err does not concern a single record, so nothing follows
}

// Run shows events until r or ctx ends, or the limit is reached. blocks reports whether Next of r
// may ignore its context. A separate goroutine reads r, so that it fetches and parses the next
// record while one is shown. A read of standard input cannot be interrupted; with the separate
// goroutine it does not delay Ctrl-C, and its later result is discarded.
func (t *Tailer) Run(ctx context.Context, r consume.Reader, blocks bool) error {
	reading, stop := context.WithCancel(ctx)
	events := make(chan received, 256) // if full, the source waits, and does not request more from JetStream
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = r.Close() }() // r was only read
		read(reading, r, events)
	}()
	err := t.showEvents(ctx, events)
	stop()
	if !blocks {
		<-ended
	}
	if finished := t.Printer.Finish(); err == nil {
		err = finished
	}
	if err == nil && t.unreadable > 0 {
		err = fmt.Errorf("records that could not be read (see above) and are not shown: %d", t.unreadable)
	}
	return err
}

// read sends the results of r until an error after which r cannot continue.
func read(ctx context.Context, r consume.Reader, events chan<- received) {
	defer close(events)
	for {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return
		}
		fatal := err != nil && !passable(err)
		select {
		case events <- received{e, err, fatal}:
		case <-ctx.Done():
			return
		}
		if fatal {
			return
		}
	}
}

// passable reports whether a source can continue after an error.
func passable(err error) bool {
	var record *consume.RecordError
	var missed *consume.MissedError
	return errors.As(err, &record) || errors.As(err, &missed)
}

// showEvents shows events until there are no more. It flushes the output as soon as no event is
// waiting.
func (t *Tailer) showEvents(ctx context.Context, events <-chan received) error {
	flushed := time.Now()
	for {
		var r received
		var ok bool
		select {
		case r, ok = <-events:
		default:
			if err := t.Printer.Flush(); err != nil {
				return err
			}
			flushed = time.Now()
			var counted <-chan time.Time
			if t.Printer.IsCounting() {
				counted = time.After(countFor)
			}
			select {
			case r, ok = <-events:
			case <-counted:
				if err := t.Printer.Finish(); err != nil {
					return err
				}
				continue
			case <-ctx.Done():
				return nil
			}
		}
		if !ok || ctx.Err() != nil {
			return nil
		}
		done, err := t.takeEvent(r)
		if err != nil || done {
			return err
		}
		if time.Since(flushed) > flushAfter {
			if err := t.Printer.Flush(); err != nil {
				return err
			}
			flushed = time.Now()
		}
	}
}

// takeEvent shows a received event if the filter selects it. done reports whether the limit or the
// end is reached.
func (t *Tailer) takeEvent(r received) (done bool, err error) {
	var missed *consume.MissedError
	switch {
	case r.last:
		return true, r.err
	case errors.As(r.err, &missed):
		return false, t.noteError(r.err)
	case r.err != nil:
		t.unreadable++
		return false, t.noteError(r.err)
	case !t.Filter.Match(r.event):
		return false, nil
	}
	if err := t.Printer.Print(r.event); err != nil {
		return false, err
	}
	t.Shown++
	return t.Limit > 0 && t.Shown >= t.Limit, nil
}

// noteError prints on standard error, between the events, the error of an event that is not shown.
func (t *Tailer) noteError(err error) error {
	if flushed := t.Printer.Finish(); flushed != nil {
		return flushed
	}
	fmt.Fprintf(t.Stderr, "kubecdc: %v\n", err)
	return nil
}
