package publish

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/patch"
)

// stage identifies the event of a delta that is in flight.
type stage uint8

const (
	whole     stage = iota // complete
	shortened              // without some members, because the bus rejects a larger one
	letter                 // to the dead letters
	gap                    // on the bus, in place of the dead letter
)

// flight is one delta in flight. It has one owner at a time: an encoder, the bus until it calls
// Done, encodeAgain, or completeFlights.
type flight[I comparable] struct {
	encode.Event
	event *Event // the same, in the form for the bus
	item  I
	delta *object.Delta
	err   error // the last error of the bus or the encoder
	sent  bool  // it was handed to the bus since the last step
	attempts
}

// attempts is the state of a flight without its bytes. It outlives them if the event is published
// again.
type attempts struct {
	stage    stage
	taken    time.Time // from the queue, the first time
	start    time.Time // of the first attempt at this stage
	failures int       // attempts at this stage that the bus handed back
	alone    bool      // see RetryError.Alone
	scope    string    // that gave it the turn; "": none

	// The fields below are set if the event was too large, or was refused.
	short  encode.Short
	tried  int      // steps of Options.Oversize
	given  string   // the last step that made it smaller
	size   int      // before any step
	cause  error    // the last error of the bus
	reason string   // label of the dead letter
	left   []string // members that the dead letter can still leave out
	id     string   // of the event, for the gap

	capture *Capture // nil: the event is not traced
}

func newFlight[I comparable](d *Dispatcher[I]) *flight[I] {
	f := new(flight[I])
	f.event = NewEvent(&f.Event, func(err error) {
		f.err = err
		d.results.Put(f)
	}, func(reason string) { f.capture.note(reason) })
	return f
}

// deltaOverhead is the approximate size of a delta's event without its objects, in bytes.
const deltaOverhead = 2 << 10

// Weigh estimates the bytes of memory that d takes in flight, with a bus driver that holds this
// many copies of its event.
func Weigh(d *object.Delta, copies int) int64 { return int64(copies) * int64(d.Size()+deltaOverhead) }

// worthResizing is the error of an estimate, in bytes, that is always tolerated.
const worthResizing = 32 << 10

// weigh corrects the estimate of Weigh if the event is much larger or smaller. It ignores small
// differences, to avoid the queue's lock.
func (d *Dispatcher[I]) weigh(f *flight[I]) {
	estimated, actual := Weigh(f.delta, d.o.Copies), int64(d.o.Copies)*int64(f.Footprint())
	if actual > estimated+estimated/4+worthResizing || actual < estimated/2-worthResizing {
		d.queue.Resize(f.item, actual)
	}
}

// encodeError means that a delta cannot be encoded.
type encodeError struct{ error }

func (e encodeError) Unwrap() error { return e.error }

// prepare encodes the event of the flight's stage and hands it to the bus.
func (d *Dispatcher[I]) prepare(f *flight[I]) {
	var err error
	switch f.stage {
	case whole:
		err = d.encoder.Encode(&f.Event, f.delta)
		d.beginCapture(f, err)
	case shortened, letter:
		err = d.encoder.EncodeShort(&f.Event, f.delta, f.short)
	case gap:
		err = d.encoder.Encode(&f.Event, f.newGap())
	}
	if err != nil {
		f.event.Done(encodeError{err})
		return
	}
	d.send(f)
}

// send hands the event to the bus, unless it exceeds Options.MaxEventBytes or is too deep.
func (d *Dispatcher[I]) send(f *flight[I]) {
	d.weigh(f)
	if f.start.IsZero() {
		f.start = time.Now()
	}
	if size := f.Size(); d.o.MaxEventBytes > 0 && size > d.o.MaxEventBytes {
		f.event.Done(fmt.Errorf("%w: it has %d bytes, and event.maxBytes is %d", ErrTooLarge, size, d.o.MaxEventBytes))
		return
	}
	if f.TooDeep {
		f.event.Done(fmt.Errorf("%w: an object in it has more than %d levels", ErrTooLarge, object.MaxLevels))
		return
	}
	if f.delta.Report != nil && f.cause != nil { // an operator has given it up
		f.event.Done(f.cause)
		return
	}
	f.event.DeadLetter = f.stage == letter
	f.event.Alone = f.alone
	f.sent = true
	if f.stage == letter {
		d.o.DeadLetters.Publish(f.event)
		return
	}
	d.bus.Publish(f.event)
}

// finish takes the next step for an event that the bus or the encoder has finished. An error ends
// Run; the delta stays unacknowledged, and the next run captures it again.
func (d *Dispatcher[I]) finish(f *flight[I], now time.Time) error {
	var (
		again       *RetryError
		unencodable encodeError
	)
	err := f.err
	if errors.As(err, &again) {
		d.retry(f, again, now)
		return nil
	}
	d.noteStage(f, now)
	encoded := !errors.As(err, &unencodable)
	switch {
	case err == nil:
		d.noteAcknowledged(f, now)
		return nil
	case f.delta.Report != nil && (!encoded || errors.Is(err, ErrRefused)):
		d.dropProgress(f, reasonOf(err, encoded), err, now)
		return nil
	case !encoded && f.stage <= shortened && f.delta.Stream == nil:
		f.short = encode.Short{Without: everything()}
		return d.deadLetter(f, letterEncode, unencodable.error)
	case !encoded && f.stage == letter:
		return d.wrapLetterError(f, unencodable.error)
	case !encoded:
		return unencodable.error
	case !errors.Is(err, ErrRefused):
		return f.wrapError(err)
	}
	return d.handleRefusal(f, err)
}

// noteAcknowledged counts an acknowledged event, and begins the next stage if there is one.
func (d *Dispatcher[I]) noteAcknowledged(f *flight[I], now time.Time) {
	switch f.stage {
	case letter:
		d.noteLetter(f)
		f.beginStage(gap)
		if d.enterTurn(f) {
			d.steps.Put(f)
		}
		return
	case shortened:
		d.noteShortened(f)
	case whole:
		if len(f.Truncated) > 0 {
			f.given, f.size = GiveUpPatch, f.Size()
			f.cause = fmt.Errorf("%w: stopped after %d bytes", patch.ErrCostly, f.Visited())
			d.noteShortened(f)
		}
	case gap:
	}
	d.countEvent(f, now)
	d.end(f, now)
}

// end gives the flight's item back.
func (d *Dispatcher[I]) end(f *flight[I], now time.Time) {
	d.endCapture(f, now, nil)
	if f.alone {
		d.metrics.alone.Dec()
		d.retries.freeAlone(now, false)
	}
	d.leaveTurn(f)
	if f.delta.Acker != nil {
		f.delta.Acker.Acked(f.delta)
	}
	d.done = append(d.done, f.item)
	d.recycle(f)
}

// recycle releases the flight's bytes.
func (d *Dispatcher[I]) recycle(f *flight[I]) {
	var none I
	f.Event.Reset()
	f.item = none
	f.delta = nil
	f.err = nil
	f.sent = false
	f.attempts = attempts{}
	d.flights.Put(f)
}

// enterTurn reports whether the flight is an event of an object or of no scope, or has its scope's
// turn. If not, encodeAgain gets the flight when its turn comes.
func (d *Dispatcher[I]) enterTurn(f *flight[I]) bool {
	switch {
	case f.delta.Stream != nil:
		f.scope = f.delta.Stream.Scope
	case f.stage == gap:
		f.scope = f.newGap().Stream.Scope
	default:
		return true
	}
	return d.turns.enter(f.scope, f)
}

// leaveTurn passes the turn to the next flight of the scope.
func (d *Dispatcher[I]) leaveTurn(f *flight[I]) {
	if f.scope == "" {
		return
	}
	if next := d.turns.leave(f.scope); next != nil {
		d.steps.Put(next)
	}
	f.scope = ""
}

// beginStage begins another stage.
func (a *attempts) beginStage(s stage) {
	a.stage = s
	a.start = time.Time{}
	a.failures = 0
}

// newGap returns the delta of the gap that replaces the flight's event on the bus.
func (f *flight[I]) newGap() *object.Delta {
	d := f.delta
	g := &object.Delta{
		Observed: d.Observed,
		Stream: &object.StreamEvent{
			Kind:     object.Gap,
			Resource: d.Ref.Resource,
			Scope:    d.Scope,
			History:  d.History,
			From:     d.Previous,
			To:       d.ResourceVersion,
			Since:    time.Unix(0, d.Observed),
			Reason:   object.DeadLetter,
			Letter:   f.id,
		},
	}
	if g.Stream.Scope == "" { // the delta has none
		g.Stream.Scope = d.Ref.Resource.String()
	}
	return g
}

func (f *flight[I]) wrapError(err error) error { return fmt.Errorf("publish %s: %w", f.ID, err) }

// countEvent counts an event that the bus has acknowledged.
func (d *Dispatcher[I]) countEvent(f *flight[I], now time.Time) {
	r := resourceOf(f.Delta)
	events := d.resources[r]
	if events == nil {
		if len(d.resources) >= maxResources {
			clear(d.resources)
		}
		events = d.metrics.events.WithLabelValues(labelOf(f.Delta))
		d.resources[r] = events
	}
	events.Inc()
	d.metrics.countEvent(&f.Event, f.start, now)
}

// maxResources bounds the cached counters.
const maxResources = 10_000

// resourceOf returns the resource of a delta's event; nil for the progress of an agent.
func resourceOf(d *object.Delta) *object.Resource {
	switch {
	case d.Stream != nil:
		return d.Stream.Resource
	case d.Report != nil:
		return nil
	}
	return d.Ref.Resource
}

// everything lists the members that an event without objects omits.
func everything() []string { return []string{GiveUpBefore, "after", GiveUpPatch} }

// beginCapture begins the capture of a traced event.
func (d *Dispatcher[I]) beginCapture(f *flight[I], err error) {
	if d.o.Tracer == nil || f.capture != nil || !f.Trace.Sampled() {
		return
	}
	f.capture = newCapture(&f.Event, f.taken)
	f.capture.noteStage(StageEncode, f.taken, time.Now(), f.Size(), err)
}

// endCapture ends the capture of a traced event.
func (d *Dispatcher[I]) endCapture(f *flight[I], now time.Time, err error) {
	if f.capture != nil {
		f.capture.End, f.capture.Err = now, err
		d.o.Tracer.Captured(f.capture)
	}
}

// noteStage adds the outcome on the bus to the capture of a traced event.
func (d *Dispatcher[I]) noteStage(f *flight[I], now time.Time) {
	if f.capture == nil || !f.sent {
		return
	}
	name := StagePublish
	switch {
	case f.stage == letter:
		name = StageDeadLetter
	case f.Delta.Stream != nil:
		name = StageGap
	}
	f.sent = false
	f.capture.noteStage(name, f.start, now, f.Size(), f.err)
}

// without reports whether s omits all of members.
func without(s encode.Short, members []string) bool {
	return !slices.ContainsFunc(members, func(m string) bool { return !slices.Contains(s.Without, m) })
}
