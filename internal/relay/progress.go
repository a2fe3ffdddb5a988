package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// DefaultProgressWait is the default of Options.ProgressWait.
const DefaultProgressWait = 10 * time.Second

var errImpatient = errors.New("earlier records are not delivered")

// deliverProgress delivers what the progress of an agent says about the scopes that the relay
// copies. It does so after all earlier records are delivered, and before all later ones.
func (r *Relay) deliverProgress(ctx context.Context, rec *driver.Record, s *slot) error {
	slots, late, complete := r.copies.addCopy(rec, s)
	for _, l := range late {
		r.marks.finish(l)
	}
	if !complete {
		return nil
	}
	leave := func(reason string) {
		r.passOver(rec, reason)
		for _, s := range slots {
			r.marks.finish(s)
		}
	}
	switch err := r.awaitDelivery(ctx); {
	case errors.Is(err, errImpatient):
		leave(passedLate)
		return nil
	case err != nil:
		return err
	}
	e, err := r.reduce(rec.Event)
	switch {
	case err != nil: // it was parsed before
		return fmt.Errorf("%s: reduce the progress of an agent: %w", rec.Where(), err)
	case e == nil:
		leave(passedFilter)
		return nil
	}
	reduced := *rec
	reduced.Event = e
	body, err := e.MarshalJSON()
	if err != nil {
		return err
	}
	key := resourceOf(e)
	r.marks.beginRecord(key)
	if err := r.lane.Put(ctx, keyOf(e), len(body)+1024, r.newDelta(&reduced, slots...)); err != nil {
		return err
	}
	return r.marks.waitIdle(ctx, key)
}

// awaitDelivery waits until all records that were read are delivered. Its error is errImpatient if
// that takes too long, because one record may keep the target busy for days.
func (r *Relay) awaitDelivery(ctx context.Context) error {
	if r.o.ProgressWait < 0 {
		return r.marks.waitAllIdle(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, r.o.ProgressWait, errImpatient)
	defer cancel()
	err := r.marks.waitAllIdle(limited)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// isWhole reports whether the target gets all events of a scope, or of all scopes of a resource.
func (r *Relay) isWhole(resource, scope string) bool {
	return r.o.Whole == nil || r.o.Whole(resource, scope)
}

// reduce returns the progress without the entries of scopes that the relay does not copy; nil: no
// entry is left. The result is e if all entries stay.
func (r *Relay) reduce(e *consume.Event) (*consume.Event, error) {
	p := e.Progress
	leftOut := map[string]bool{} // resources with a named scope that is left out
	for i := range p.Scopes {
		if s := &p.Scopes[i]; s.Scope != "" && !r.isWhole(s.Resource, s.Scope) {
			leftOut[s.Resource] = true
		}
	}
	return Reduce(e, func(s *consume.ScopeProgress) Claim {
		// If a named scope is left out, an entry for all other scopes of the resource would cover
		// that scope too.
		if !r.isWhole(s.Resource, s.Scope) || s.Scope == "" && leftOut[s.Resource] {
			return Claim{LeaveOut: true}
		}
		h, ok := r.missing.holeOf(e.ClusterKey(), s.Resource)
		if !ok || s.SnapshotBegan.After(h.Until) {
			return Claim{}
		}
		return Claim{Hidden: &consume.HiddenSpan{From: h.From}}
	})
}

// Claim says how Reduce changes an entry of a progress. The zero value leaves it as it is.
type Claim struct {
	LeaveOut bool
	// Hidden is an open span in which events are missing. It is added to the entry, which loses
	// what it says about completeness. nil: there is no such span.
	Hidden *consume.HiddenSpan
}

// Reduce returns the progress of an agent after claim has decided about each entry; nil: no entry
// is left. All other values stay the same, byte for byte. The result is e if all entries stay.
func Reduce(e *consume.Event, claim func(*consume.ScopeProgress) Claim) (*consume.Event, error) {
	claims := make([]Claim, len(e.Progress.Scopes))
	left, changed := 0, false
	for i := range claims {
		claims[i] = claim(&e.Progress.Scopes[i])
		if !claims[i].LeaveOut {
			left++
		}
		changed = changed || claims[i] != Claim{}
	}
	switch {
	case left == 0:
		return nil, nil
	case !changed:
		return e, nil
	}
	record, err := e.MarshalJSON()
	if err != nil {
		return nil, err
	}
	record, err = replaceMember(record, "data", func(data []byte) ([]byte, error) {
		return replaceMember(data, "scopes", func(scopes []byte) ([]byte, error) {
			return reduceScopes(scopes, claims)
		})
	})
	if err != nil {
		return nil, err
	}
	reduced, err := consume.Parse(record)
	if err != nil {
		return nil, err
	}
	reduced.Position = e.Position
	return reduced, nil
}

// reduceScopes returns the array of entries after claims.
func reduceScopes(scopes []byte, claims []Claim) ([]byte, error) {
	m := jsonscan.NewMembers(scopes)
	out := append(make([]byte, 0, len(scopes)+64), '[')
	m.Enter('[')
	for i := 0; m.NextElement(); i++ {
		entry := m.Value()
		if i >= len(claims) {
			break
		}
		if claims[i].LeaveOut {
			continue
		}
		if h := claims[i].Hidden; h != nil {
			var err error
			entry, err = hide(entry, h)
			if err != nil {
				return nil, err
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, entry...)
	}
	return append(out, ']'), m.End()
}

// hide returns an entry without its claims, with another hidden span.
func hide(entry []byte, h *consume.HiddenSpan) ([]byte, error) {
	span, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	hidden := []json.RawMessage{}
	out, err := eachMember(entry, func(name string, value []byte) ([]byte, error) {
		switch name {
		case "resourceVersion", "history", "to", "snapshotBegan":
			return nil, nil
		case "hidden":
			return nil, json.Unmarshal(value, &hidden)
		}
		return value, nil
	})
	if err != nil {
		return nil, err
	}
	all, err := json.Marshal(append(hidden, span))
	if err != nil {
		return nil, err
	}
	return append(append(append(out[:len(out)-1], `,"hidden":`...), all...), '}'), nil // an entry has a resource
}

// replaceMember returns an object with another value of a member. All other values stay the
// same, byte for byte.
func replaceMember(doc []byte, member string, replace func(value []byte) ([]byte, error)) ([]byte, error) {
	return eachMember(doc, func(name string, value []byte) ([]byte, error) {
		if name == member {
			return replace(value)
		}
		return value, nil
	})
}

// eachMember returns an object with the values that f returns for its members; nil: without the
// member.
func eachMember(doc []byte, f func(name string, value []byte) ([]byte, error)) ([]byte, error) {
	m := jsonscan.NewMembers(doc)
	out := append(make([]byte, 0, len(doc)+64), '{')
	m.Enter('{')
	for name, ok := m.Next(); ok; name, ok = m.Next() {
		quoted, err := json.Marshal(string(name))
		if err != nil {
			return nil, err
		}
		value, err := f(string(name), m.Value())
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted...), ':'), value...)
	}
	return append(out, '}'), m.End()
}
