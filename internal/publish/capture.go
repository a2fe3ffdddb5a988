package publish

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Tracer gets the captures of the events that are traced (encode.Event.Trace).
//
// Captured takes c over. It returns at once, whatever becomes of c: all completions wait for it.
type Tracer interface {
	Captured(c *Capture)
}

// The names of steps.
const (
	StepEncode     = "encode"
	StepPublish    = "publish"     // from Bus.Publish to Event.Done
	StepClaim      = "claim"       // the whole event is put aside
	StepDeadLetter = "dead_letter" // the event is sent to the dead letters
	StepGap        = "gap"         // the bus is told that it is there
)

// Capture is the way of one event from the API server to the bus. It holds neither an object nor an event's body.
type Capture struct {
	Trace    encode.Trace
	ID       string // of the event
	Source   string
	Type     string
	Op       object.Op
	Ref      *object.Ref
	Version  uint64 // resourceVersion
	Observed time.Time
	Taken    time.Time // out of the queue
	End      time.Time // acknowledged, or given up
	Err      error     // why it was given up; nil: the bus has it, or the dead letters do
	Steps    []Step

	failed   []Failure // of the step under way
	failures int
}

// Step is one thing that was done with an event.
type Step struct {
	Name       string
	Start, End time.Time
	Bytes      int // of the event; 0: not known
	Err        error
	Failures   []Failure // attempts that failed and were made again, the first maxFailures of them
	Failed     int       // how many there were
}

// Failure is an attempt that failed and was made again.
type Failure struct {
	At     time.Time
	Reason string // as the metric's label
}

// MaxFailures bounds what is kept of an event that is tried for hours.
const MaxFailures = 16

type captureKey struct{}

func newCapture(ev *encode.Event, taken time.Time) *Capture {
	d := ev.Delta
	return &Capture{
		Trace: ev.Trace, ID: string(ev.ID), Source: string(ev.Source), Type: string(ev.Type), Op: d.Op, Ref: d.Ref, Version: d.ResourceVersion,
		Observed: time.Unix(0, d.Observed), Taken: taken,
	}
}

// within is ctx for the steps of c.
func (c *Capture) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, captureKey{}, c)
}

// captureOf is the capture that ctx is for; nil: the event is not traced.
func captureOf(ctx context.Context) *Capture {
	c, _ := ctx.Value(captureKey{}).(*Capture)
	return c
}

func (c *Capture) step(name string, start, end time.Time, bytes int, err error) {
	c.Steps = append(c.Steps, Step{Name: name, Start: start, End: end, Bytes: bytes, Err: err, Failures: c.failed, Failed: c.failures})
	c.failed, c.failures = nil, 0
}

// note adds an attempt that failed and is made again. c may be nil: the event is not traced.
func (c *Capture) note(reason string) {
	if c == nil {
		return
	}
	c.failures++
	if len(c.failed) < MaxFailures {
		c.failed = append(c.failed, Failure{At: time.Now(), Reason: reason})
	}
}

// NoteFailure adds to the event that ctx is for an attempt that failed and is made again.
func NoteFailure(ctx context.Context, reason string) { captureOf(ctx).note(reason) }
