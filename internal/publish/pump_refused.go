package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Why an event is in the dead letters: values of the label reason, and the beginning of the attribute deadletterreason.
const (
	letterTooLarge = "too_large" // with all given up that may be
	letterRefused  = "refused"   // whatever its size
	letterEncode   = "encode"    // it could not be made
)

// refused gives up what may be given up of an event that is too large, until the bus takes it. What it refuses for good
// goes to the dead letters. cause is what the bus said of the whole event.
//
// The hot path has nothing of this: each step encodes the event anew.
func (p *Pump[I]) refused(ctx context.Context, ev *encode.Event, d *object.Delta, cause error) error {
	var s encode.Short
	given, size := "", ev.Size()
	for _, step := range p.o.Oversize {
		if !errors.Is(cause, ErrTooLarge) || d.Stream != nil {
			break
		}
		next := encode.Short{Without: append(slices.Clone(s.Without), step), DataRef: s.DataRef}
		if step == Reference {
			ref, err := p.claim(ctx, ev, d)
			switch {
			case errors.Is(err, ErrRefused):
				cause = fmt.Errorf("%w; and the whole of it cannot be put aside: %w", cause, err)
				continue
			case err != nil:
				return p.failed(ev, err)
			}
			next = encode.Short{Without: everything(), DataRef: ref}
		}
		before := ev.Truncated
		if err := p.encoder.EncodeShort(ev, d, next); err != nil {
			return p.unencodable(ctx, ev, d, err)
		}
		if s = next; step != Reference && len(ev.Truncated) == len(before) {
			continue // it had no such thing
		}
		given = step
		err := p.offer(ctx, ev)
		if err == nil {
			p.noteShortened(ev, d, given, size, cause)
			return nil
		}
		cause = err
	}
	if !errors.Is(cause, ErrRefused) {
		return p.failed(ev, cause)
	}
	reason := letterRefused
	if errors.Is(cause, ErrTooLarge) {
		reason = letterTooLarge
	}
	return p.deadLetter(ctx, ev, d, s, reason, cause)
}

// everything is what an event without either object leaves out.
func everything() []string { return []string{"before", "after", "patch"} }

// claim puts the whole event aside and says where it is. ev is used for it.
func (p *Pump[I]) claim(ctx context.Context, ev *encode.Event, d *object.Delta) (string, error) {
	if p.o.Claims == nil {
		return "", fmt.Errorf("%w: there is no claim store", ErrRefused)
	}
	truncated := ev.Truncated
	if err := p.encoder.EncodeWhole(ev, d); err != nil {
		return "", err
	}
	start := time.Now()
	ref, err := p.o.Claims.Put(ctx, ClaimName(ev), ev.ContentType, ev.Body)
	p.step(ctx, StepClaim, start, len(ev.Body), err)
	ev.Truncated = truncated
	return ref, err
}

// unencodable sends what can be said of a delta of which no event can be made: everything but its objects.
func (p *Pump[I]) unencodable(ctx context.Context, ev *encode.Event, d *object.Delta, cause error) error {
	if d.Stream != nil {
		return cause
	}
	return p.deadLetter(ctx, ev, d, encode.Short{Without: everything()}, letterEncode, cause)
}

// deadLetter sends an event to the dead letters, as much of it as they take, and then says on the bus that it is missing
// there. In this order, and both acknowledged before the delta is: whoever finds the gap finds the letter, and no later
// event of the object overtakes the gap. After a crash in between both come again, under the same ids.
func (p *Pump[I]) deadLetter(ctx context.Context, ev *encode.Event, d *object.Delta, s encode.Short, reason string, cause error) error {
	switch {
	case d.Stream != nil:
		// Consumers would take for complete what is not.
		return fmt.Errorf("%w: the records mean nothing without this one: see that the bus takes it", p.failed(ev, cause))
	case p.o.DeadLetters == nil:
		return fmt.Errorf("%w: there are no dead letters to take it, and the agent rather stops than leaves it out: set deadLetter in the configuration, or %s",
			p.failed(ev, cause), adviceOf(reason))
	}
	s.Reason = reason + ": " + cause.Error()
	err := p.encoder.EncodeShort(ev, d, s)
	if err == nil {
		err = p.letter(ctx, ev)
	}
	left := []string{GiveUpPatch, GiveUpBefore, "after"}
	for len(left) > 0 && errors.Is(err, ErrRefused) {
		give := 1
		if !errors.Is(err, ErrTooLarge) {
			give = len(left) // what the bus refuses may lie in the objects: dead letters of the same bus are refused for it too
		}
		more := left[:give]
		if left = left[give:]; !slices.ContainsFunc(more, func(m string) bool { return !slices.Contains(s.Without, m) }) {
			continue
		}
		s.Without = append(slices.Clone(s.Without), more...)
		if err = p.encoder.EncodeShort(ev, d, s); err == nil {
			err = p.letter(ctx, ev)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return p.failed(ev, err) // nobody has refused it
	case err != nil:
		return fmt.Errorf("%w: and the dead letters do not take it: %w: see what they refuse, or %s", p.failed(ev, cause), err, adviceOf(reason))
	}
	p.metrics.deadLetters.WithLabelValues(reason).Inc()
	if attrs, ok := p.first(reason, d); ok {
		p.log.Error("event is in the dead letters and not on the bus", append(attrs, "event_id", string(ev.ID), "reason", reason,
			"bytes", ev.Size(), "err", cause)...)
	}
	return p.gap(ctx, ev, d)
}

// letter publishes ev to the dead letters.
func (p *Pump[I]) letter(ctx context.Context, ev *encode.Event) error {
	if err := p.checkSize(ev); err != nil {
		return err
	}
	start := time.Now()
	err := p.o.DeadLetters.Publish(ctx, ev)
	p.step(ctx, StepDeadLetter, start, ev.Size(), err)
	return err
}

// gap says on the bus that the event of d is missing there. ev is that event, and is used for the gap.
func (p *Pump[I]) gap(ctx context.Context, ev *encode.Event, d *object.Delta) error {
	gap := &object.Delta{
		Observed: d.Observed,
		Stream: &object.StreamEvent{
			Kind: object.Gap, Resource: d.Ref.Resource, Scope: d.Scope, History: d.History, From: d.Previous, To: d.ResourceVersion,
			Since: time.Unix(0, d.Observed), Reason: object.DeadLetter, Letter: string(ev.ID),
		},
	}
	if gap.Stream.Scope == "" { // whoever made the delta has none
		gap.Stream.Scope = d.Ref.Resource.String()
	}
	unlock, err := p.scopes.lock(ctx, gap.Stream.Scope)
	if err != nil {
		return p.failed(ev, err)
	}
	defer unlock()
	if err := p.encoder.Encode(ev, gap); err != nil {
		return err
	}
	if err := p.offer(ctx, ev); err != nil {
		return p.failed(ev, err)
	}
	return nil
}

func (*Pump[I]) failed(ev *encode.Event, err error) error {
	return fmt.Errorf("publish %s: %w", ev.ID, err)
}

func adviceOf(reason string) string {
	switch reason {
	case letterTooLarge:
		return "raise the bus's limit and event.maxBytes, or configure claimCheck and oversize"
	case letterEncode:
		return "leave the resource out of the configuration, and report this"
	}
	return "have the bus take it"
}

// noteShortened counts an event that went without some of it, of size bytes before. The log has the first of each resource and
// step per window.
func (p *Pump[I]) noteShortened(ev *encode.Event, d *object.Delta, given string, size int, cause error) {
	p.metrics.oversize.WithLabelValues(given).Inc()
	if attrs, ok := p.first(given, d); ok {
		p.log.Warn("event is too large for the bus and was sent shortened", append(attrs, "event_id", string(ev.ID),
			"given_up", given, "bytes", size, "bytes_sent", ev.Size(), "err", cause)...)
	}
}

// first tells whether a line of that kind about the resource of d is due, and how it begins.
func (p *Pump[I]) first(kind string, d *object.Delta) (attrs []any, ok bool) {
	r := resourceOf(d).String()
	suppressed, ok := p.window.First(kind + " " + r)
	return []any{"resource", r, "namespace", d.Ref.Namespace(), "name", d.Ref.Name(), "rv", d.ResourceVersion, "suppressed", suppressed}, ok
}
