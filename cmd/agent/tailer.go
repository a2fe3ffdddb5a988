package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kubecdc/kubecdc/internal/console"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	// flushAfter is how late an event may be shown while others come faster than they can be.
	flushAfter = 100 * time.Millisecond
	// countFor is how long reads are counted where nothing else comes.
	countFor = 250 * time.Millisecond
)

// tailer shows the events of a source that are asked for.
type tailer struct {
	filter  *console.Filter
	limit   int // 0: none
	printer *console.Printer
	warn    io.Writer

	shown, unreadable int
}

// received is what a source has returned.
type received struct {
	event *consume.Event
	err   error
	last  bool // err is not about one record: there will be no more
}

// run shows events until r or ctx ends, or the limit is reached. r is read in a goroutine of its own, so
// that the next record is fetched and parsed while one is shown, and so that a read of standard input, which cannot be
// interrupted, does not keep Ctrl-C waiting: what it returns then is thrown away.
func (t *tailer) run(ctx context.Context, r consume.Reader, blocks bool) error {
	reading, stop := context.WithCancel(ctx)
	events := make(chan received, 256) // full: the source waits, which a JetStream is told by what is not asked for
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = r.Close() }() // only read
		read(reading, r, events)
	}()
	err := t.show(ctx, events)
	stop()
	if !blocks {
		<-ended
	}
	if finished := t.printer.Finish(); err == nil {
		err = finished
	}
	if err == nil && t.unreadable > 0 {
		err = fmt.Errorf("records that could not be read, see above, and are not shown: %d", t.unreadable)
	}
	return err
}

// read sends what r returns, up to an error that it cannot go on from.
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

// passable tells whether the next call of a source goes on behind an error.
func passable(err error) bool {
	var record *consume.RecordError
	var missed *consume.MissedError
	return errors.As(err, &record) || errors.As(err, &missed)
}

// show shows events until there are no more. What has been shown is on the terminal as soon as there is nothing else to do.
func (t *tailer) show(ctx context.Context, events <-chan received) error {
	flushed := time.Now()
	for {
		var r received
		var ok bool
		select {
		case r, ok = <-events:
		default:
			if err := t.printer.Flush(); err != nil {
				return err
			}
			flushed = time.Now()
			var counted <-chan time.Time
			if t.printer.Counting() {
				counted = time.After(countFor)
			}
			select {
			case r, ok = <-events:
			case <-counted:
				if err := t.printer.Finish(); err != nil {
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
		done, err := t.take(r)
		if err != nil || done {
			return err
		}
		if time.Since(flushed) > flushAfter {
			if err := t.printer.Flush(); err != nil {
				return err
			}
			flushed = time.Now()
		}
	}
}

// take shows what has been received, if it is asked for. done: nothing more is.
func (t *tailer) take(r received) (done bool, err error) {
	var missed *consume.MissedError
	switch {
	case r.last:
		return true, r.err
	case errors.As(r.err, &missed):
		return false, t.note(r.err)
	case r.err != nil:
		t.unreadable++
		return false, t.note(r.err)
	case !t.filter.Match(r.event):
		return false, nil
	}
	if err := t.printer.Print(r.event); err != nil {
		return false, err
	}
	t.shown++
	return t.limit > 0 && t.shown >= t.limit, nil
}

// note says on standard error, between the events, what is not shown.
func (t *tailer) note(err error) error {
	if flushed := t.printer.Finish(); flushed != nil {
		return flushed
	}
	fmt.Fprintf(t.warn, "kubecdc: %v\n", err)
	return nil
}
