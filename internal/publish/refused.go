package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Reasons of dead letters: values of the label reason, and the beginning of the attribute
// deadletterreason.
const (
	letterTooLarge = "too_large" // after all steps of Options.Oversize
	letterRefused  = "refused"   // regardless of its size
	letterEncode   = "encode"    // it could not be encoded
)

// handleRefusal shortens an event that is too large. An event that the bus refuses for good goes to
// the dead letters. An error ends Run.
func (d *Dispatcher[I]) handleRefusal(f *flight[I], err error) error {
	switch f.stage {
	case whole, shortened:
	case letter:
		return d.shortenLetter(f, err)
	case gap:
		return f.wrapError(err)
	}
	if f.stage == whole {
		f.size = f.Size()
	}
	f.cause = err
	switch {
	case !errors.Is(err, ErrTooLarge):
		return d.deadLetter(f, letterRefused, err)
	case f.delta.Stream == nil && f.tried < len(d.o.Oversize):
		f.beginStage(shortened)
		d.steps.Put(f)
		return nil
	}
	return d.deadLetter(f, letterTooLarge, err)
}

// shorten takes the next step of Options.Oversize that makes the event smaller, and hands it to the
// bus.
func (d *Dispatcher[I]) shorten(ctx context.Context, f *flight[I], all *errgroup.Group) {
	steps := d.oversizeSteps(f.delta)
	for f.tried < len(steps) {
		step := steps[f.tried]
		f.tried++
		if step == Reference {
			// The store may be slow. The limit of events in flight bounds these goroutines.
			all.Go(func() error { return d.claim(ctx, f) })
			return
		}
		before := len(f.Truncated)
		f.short.Without = append(slices.Clone(f.short.Without), step)
		if err := d.encoder.EncodeShort(&f.Event, f.delta, f.short); err != nil {
			f.event.Done(encodeError{err})
			return
		}
		if len(f.Truncated) == before {
			continue // it has no such member
		}
		f.given = step
		d.send(f)
		return
	}
	f.event.Done(f.cause)
}

// oversizeSteps returns the steps for an event that is too large. A deletion or a left has only the
// object before, so the reference precedes its loss.
func (d *Dispatcher[I]) oversizeSteps(delta *object.Delta) []string {
	switch delta.Op {
	case object.Deleted, object.Left:
		return d.referenceFirst
	case object.Created, object.Updated, object.Read, object.Entered:
	}
	return d.o.Oversize
}

// referenceFirst moves Reference to the front of steps.
func referenceFirst(steps []string) []string {
	i := slices.Index(steps, Reference)
	if i <= 0 {
		return steps
	}
	return slices.Insert(slices.Delete(slices.Clone(steps), i, i+1), 0, Reference)
}

// claim stores the whole event in the claim store, and publishes an event with its URI. An error
// ends Run.
func (d *Dispatcher[I]) claim(ctx context.Context, f *flight[I]) error {
	ref, err := d.putClaim(ctx, f)
	switch {
	case errors.Is(err, ErrRefused):
		f.cause = fmt.Errorf("%w; and storing the whole event failed: %w", f.cause, err)
		f.event.Done(f.cause) // the next step, or the dead letters
		return nil
	case err != nil:
		return f.wrapError(err)
	}
	f.short, f.given = encode.Short{Without: everything(), DataRef: ref}, Reference
	d.prepare(f)
	return nil
}

// putClaim stores the whole event. It uses f's buffers.
func (d *Dispatcher[I]) putClaim(ctx context.Context, f *flight[I]) (ref string, err error) {
	if d.o.Claims == nil {
		return "", fmt.Errorf("%w: no claim store is configured", ErrRefused)
	}
	if err := d.encoder.EncodeWhole(&f.Event, f.delta); err != nil {
		return "", err
	}
	d.queue.Resize(f.item, int64(f.Footprint())) // earlier steps may have reduced it
	start := time.Now()
	ref, err = d.o.Claims.Put(ctx, ClaimName(&f.Event), f.ContentType, f.Body, f.event.Retried)
	if f.capture != nil {
		f.capture.noteStage(StageClaim, start, time.Now(), len(f.Body), err)
	}
	return ref, err
}

// deadLetter sends as much of the event as possible to the dead letters, then a gap in its place to
// the bus. Both are acknowledged before the delta: a consumer that sees the gap finds the letter,
// and no later event of the object overtakes the gap. After a crash in between, both are sent
// again, with the same ids.
func (d *Dispatcher[I]) deadLetter(f *flight[I], reason string, cause error) error {
	switch {
	case d.o.Refused != nil:
		if err := d.o.Refused(f.delta, f.wrapError(cause)); err != nil {
			return err
		}
		d.end(f, time.Now())
		return nil
	case f.delta.Stream != nil:
		// Without it, consumers would treat incomplete data as complete.
		return fmt.Errorf("%w: consumers cannot do without this event: make the bus accept it", f.wrapError(cause))
	case d.o.DeadLetters == nil:
		return fmt.Errorf(
			"%w: no dead letters are configured, so the agent stops instead of losing it: set deadLetter in the configuration, or %s",
			f.wrapError(cause), adviceOf(reason))
	}
	f.beginStage(letter)
	f.reason = reason
	f.cause = cause
	f.id = string(f.ID)
	f.size = f.Size()
	f.short.Reason = reason + ": " + cause.Error()
	f.left = []string{GiveUpPatch, GiveUpBefore, "after"}
	d.steps.Put(f)
	return nil
}

// shortenLetter omits more of an event that the dead letters reject.
func (d *Dispatcher[I]) shortenLetter(f *flight[I], err error) error {
	for len(f.left) > 0 {
		n := 1
		if !errors.Is(err, ErrTooLarge) {
			n = len(f.left) // the cause may be in the objects: then dead letters on the same bus are refused too
		}
		more := f.left[:n]
		f.left = f.left[n:]
		if !without(f.short, more) {
			f.short.Without = append(slices.Clone(f.short.Without), more...)
			d.steps.Put(f)
			return nil
		}
	}
	return d.wrapLetterError(f, err)
}

// wrapLetterError returns the error that ends Run for an event that neither the bus nor the dead
// letters accept.
func (*Dispatcher[I]) wrapLetterError(f *flight[I], err error) error {
	return fmt.Errorf("%w; the dead letters reject it too: %w: check why, or %s", f.wrapError(f.cause), err,
		adviceOf(f.reason))
}

func adviceOf(reason string) string {
	switch reason {
	case letterTooLarge:
		return "raise the bus's limit and event.maxBytes, or configure claimCheck and oversize"
	case letterEncode:
		return "remove the resource from the configuration, and report this"
	}
	return "make the bus accept it"
}

// noteLetter counts an event that is in the dead letters.
func (d *Dispatcher[I]) noteLetter(f *flight[I]) {
	d.metrics.deadLetters.WithLabelValues(f.reason).Inc()
	if attrs, ok := d.beginLine(f.reason, f); ok {
		d.log.Error("event was sent to the dead letters instead of the bus",
			append(attrs, "reason", f.reason, "bytes", f.Size(), "err", f.cause)...)
	}
}

// noteShortened counts an event that the bus has without some members. It logs the first of each
// resource and step per window.
func (d *Dispatcher[I]) noteShortened(f *flight[I]) {
	d.metrics.oversize.WithLabelValues(f.given).Inc()
	if attrs, ok := d.beginLine(f.given, f); ok {
		d.log.Warn("event is too large for the bus and was sent shortened", append(attrs,
			"given_up", f.given, "bytes", f.size, "bytes_sent", f.Size(), "err", f.cause)...)
	}
}

// beginLine reports whether a log line of that kind about the resource of f is due, and returns its
// first attributes.
func (d *Dispatcher[I]) beginLine(kind string, f *flight[I]) (attrs []any, ok bool) {
	r := resourceOf(f.delta).String()
	suppressed, ok := d.window.First(kind + " " + r)
	ref := f.delta.Ref
	return []any{
		"resource", r, "namespace", ref.Namespace(), "name", ref.Name(), "rv", f.delta.ResourceVersion, "suppressed",
		suppressed,
		"event_id", string(f.ID),
	}, ok
}

// ClaimStore stores whole events that are too large for the bus.
//
// Put returns after body is durably stored, with a URI that a consumer can follow. The same name
// again replaces it. While the store is away or full, Put retries with backoff until ctx ends; then
// it returns the cause of ctx. Before each retry it calls retried, unless nil, with one of the
// Reason constants. An error that wraps ErrRefused means that the store rejects the body; any
// other, that the store is gone for good. Safe for concurrent use.
type ClaimStore interface {
	Put(ctx context.Context, name, contentType string, body []byte, retried func(reason string)) (ref string, err error)
}

// ClaimName returns the name under which the whole of ev is stored, always the same: sha256(source
// + "\n" + id) in 64 hexadecimal digits.
func ClaimName(ev *encode.Event) string {
	h := sha256.New()
	h.Write(ev.Source)
	h.Write([]byte{'\n'})
	h.Write(ev.ID)
	return hex.EncodeToString(h.Sum(nil))
}
