package publish

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Tracer receives the captures of traced events (encode.Event.Trace).
//
// Captured takes ownership of c. It must return at once, because all completions wait for it.
type Tracer interface {
	Captured(c *Capture)
}

// The names of stages.
const (
	StageEncode     = "encode"
	StagePublish    = "publish"     // from Bus.Publish to Event.Done
	StageClaim      = "claim"       // the whole event goes to the claim store
	StageDeadLetter = "dead_letter" // the event is sent to the dead letters
	StageGap        = "gap"         // a gap is published in its place
)

// Capture has the stages of one event from the API server to the bus. It contains neither an
// object nor an event's body.
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
	Stages   []Stage

	failed   []Failure // of the current stage
	failures int
}

// Stage is a part of the work on one event.
type Stage struct {
	Name       string
	Start, End time.Time
	Bytes      int // of the event; 0: unknown
	Err        error
	Failures   []Failure // failed attempts that were repeated, the first MaxFailures of them
	Failed     int       // their total number
}

// Failure is a failed attempt that was repeated.
type Failure struct {
	At     time.Time
	Reason string // as the metric's label
}

// MaxFailures bounds the failures stored for an event that is retried for hours.
const MaxFailures = 16

func newCapture(ev *encode.Event, taken time.Time) *Capture {
	d := ev.Delta
	return &Capture{
		Trace:    ev.Trace,
		ID:       string(ev.ID),
		Source:   string(ev.Source),
		Type:     string(ev.Type),
		Op:       d.Op,
		Ref:      d.Ref,
		Version:  d.ResourceVersion,
		Observed: time.Unix(0, d.Observed),
		Taken:    taken,
	}
}

func (c *Capture) noteStage(name string, start, end time.Time, bytes int, err error) {
	c.Stages = append(c.Stages, Stage{
		Name:     name,
		Start:    start,
		End:      end,
		Bytes:    bytes,
		Err:      err,
		Failures: c.failed,
		Failed:   c.failures,
	})
	c.failed, c.failures = nil, 0
}

// note adds a failed attempt that is repeated. c is nil if the event is not traced.
func (c *Capture) note(reason string) {
	if c == nil {
		return
	}
	c.failures++
	if len(c.failed) < MaxFailures {
		c.failed = append(c.failed, Failure{At: time.Now(), Reason: reason})
	}
}
