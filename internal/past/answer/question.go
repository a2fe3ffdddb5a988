package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// ErrNotExact is the error of an answer that has been printed and is not exact, if Question.Exact
// is set.
var ErrNotExact = errors.New("the answer is not exact")

// UsageError is the error of a question that names too many objects or clusters.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Question is about the past of the wanted objects in a record. Its methods return the answers.
type Question struct {
	Record *record.Record
	Wanted *record.Selection
	Exact  bool // an answer that is not exact is an error
	// NoStatus makes a diff leave out objects that differ in status alone.
	NoStatus bool

	// Show calls f, and may show text as long as f runs; nil: nothing is shown. done says that no
	// text is needed any more.
	Show func(ctx context.Context, text func() (line string, done bool), f func(context.Context) error) error
	// Streams reports whether the answer is shown during the reading, so that no progress is needed
	// after the first event.
	Streams bool
}

// Resolve finds the resources that the user's words name. The other methods require it.
func (q *Question) Resolve(ctx context.Context) error {
	return q.During(ctx, func(ctx context.Context) error { return q.Record.Resolve(ctx, q.Wanted) })
}

// During calls f, which reads the record. If f takes long, Show shows the progress.
func (q *Question) During(ctx context.Context, f func(context.Context) error) error {
	began, before := time.Now(), q.Record.Events()
	return q.showCount(ctx, func() (string, bool) {
		n := int(q.Record.Events() - before)
		if n == 0 { // a server that has just started reads the stream before it sends any
			return "waiting for the first event of the record", false
		}
		if q.Streams {
			return "", true
		}
		rate := int(float64(n) / time.Since(began).Seconds())
		return fmt.Sprintf("reading the record: %s events, %s a second", wording.Count(n), wording.Count(rate)), false
	}, f)
}

// showCount calls f, and lets Show show text.
func (q *Question) showCount(
	ctx context.Context, text func() (line string, done bool), f func(context.Context) error,
) error {
	var err error
	if q.Show == nil {
		err = f(ctx)
	} else {
		err = q.Show(ctx, text, f)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// CheckExact returns ErrNotExact if the answer has to be exact and is not.
func (q *Question) CheckExact(c *Assessment) error {
	if q.Exact && !c.IsExact() {
		return ErrNotExact
	}
	return nil
}

// hasLabels reports whether an object matches the label selector.
func (q *Question) hasLabels(object json.RawMessage) bool {
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
