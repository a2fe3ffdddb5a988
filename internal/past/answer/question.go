package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// ErrNotExact is the error of an answer that has been printed and is not exact, if Question.Exact
// is set.
var ErrNotExact = errors.New("the answer is not exact")

// UsageError is the error of a question that names too many objects or clusters.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Question is about the past of the wanted objects in a record. Its methods print their answers.
type Question struct {
	Record *record.Record
	Wanted *record.Selection
	Format printer.Format
	Exact  bool // an answer that is not exact is an error
	// NoStatus makes a diff leave out objects that differ in status alone.
	NoStatus bool

	Stdout *terminal.Output
	Stderr *terminal.Output
	Pager  *terminal.Pager // of Stdout; nil without a pager

	// streams reports whether the answer is printed to a terminal during the reading, so that no
	// progress is needed after the first event.
	streams bool

	saying  sync.Mutex  // the lines about a moment are written together
	display displayLock // of Stderr
}

// displayLock is held by what draws on a terminal, which shows one progress at a time. The zero
// value is not held.
type displayLock struct {
	once sync.Once
	free chan struct{}
}

// lock waits for the lock. It returns false if ctx ends before.
func (l *displayLock) lock(ctx context.Context) bool {
	l.once.Do(func() { l.free = make(chan struct{}, 1) })
	select {
	case l.free <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *displayLock) unlock() { <-l.free }

// Resolve finds the resources that the user's words name. The other methods require it.
func (q *Question) Resolve(ctx context.Context) error {
	return q.During(ctx, func(ctx context.Context) error { return q.Record.Resolve(ctx, q.Wanted) })
}

// During calls f, which reads the record. If f takes long, it shows the progress at a terminal.
func (q *Question) During(ctx context.Context, f func(context.Context) error) error {
	began, before := time.Now(), q.Record.Events()
	return q.counting(ctx, func() (string, bool) {
		n := int(q.Record.Events() - before)
		if n == 0 { // a server that has just started reads the stream before it sends any
			return "waiting for the first event of the record", false
		}
		if q.streams {
			return "", true
		}
		rate := int(float64(n) / time.Since(began).Seconds())
		return fmt.Sprintf("reading the record: %s events, %s a second", wording.Count(n), wording.Count(rate)), false
	}, f)
}

// counting calls f. If f takes longer than a second, it shows text at a terminal until that is
// done.
func (q *Question) counting(
	ctx context.Context, text func() (line string, done bool), f func(context.Context) error,
) error {
	showing, stop := context.WithCancel(ctx)
	var counter sync.WaitGroup
	counter.Go(func() {
		select {
		case <-time.After(time.Second):
		case <-showing.Done():
			return
		}
		if !q.display.lock(showing) {
			return
		}
		defer q.display.unlock()
		terminal.NewCounter(q.Stderr, text).Run(showing)
	})
	err := f(ctx)
	stop()
	counter.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// judge returns ErrNotExact if the answer has to be exact and is not.
func (q *Question) judge(c *assessment) error {
	if q.Exact && !c.IsExact() {
		return ErrNotExact
	}
	return nil
}

// labelled reports whether an object matches the label selector.
func (q *Question) labelled(object json.RawMessage) bool {
	switch {
	case q.Wanted.Selector == nil:
		return true
	case object == nil:
		return false
	}
	var o struct {
		Metadata struct{ Labels labels.Set }
	}
	_ = json.Unmarshal(object, &o) // impossible to fail: it came from JSON
	return q.Wanted.Selector.Matches(o.Metadata.Labels)
}

// printValue prints a value as JSON or YAML, or the text that the template produces.
func (q *Question) printValue(value any) error {
	text, err := q.Format.Encode(value, "    ")
	if err != nil {
		return err
	}
	_, err = q.Stdout.Write(text)
	return err
}
