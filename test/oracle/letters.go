package oracle

import (
	"encoding/json"
)

// readShortened replaces a truncated event's record by that of the whole event, which Whole
// fetches.
func (r *Reader) readShortened(rec *Record, e *envelope, problem func(string, ...any)) {
	if e.DataRef != e.Data.DataRef {
		problem("dataref is %q, that of data %q", e.DataRef, e.Data.DataRef)
	}
	rec.Truncated = e.Data.Truncated
	if len(rec.Truncated) > 0 && !r.MayTruncate {
		problem("truncated: %v", rec.Truncated)
	}
	if e.DataRef == "" {
		return
	}
	if r.Whole == nil || len(rec.Truncated) == 0 {
		problem("dataref %s, truncated %v", e.DataRef, rec.Truncated)
		return
	}
	body, err := r.Whole(e.DataRef)
	if err != nil {
		problem("dataref %s: %v", e.DataRef, err)
		return
	}
	whole := r.Read(Message{Position: rec.Position, Lane: rec.Lane, Body: body})
	if whole.ID != rec.ID {
		problem("dataref %s: is the event %s", e.DataRef, whole.ID)
	}
	if len(whole.Truncated) > 0 || whole.Ref != "" {
		problem("dataref %s: what is there lacks %v itself", e.DataRef, whole.Truncated)
	}
	whole.Problems = append(rec.Problems, whole.Problems...)
	whole.Stored = rec.Stored
	whole.Truncated = rec.Truncated
	whole.Ref = e.DataRef
	*rec = whole
}

// Letter is an event that the bus has rejected.
type Letter struct {
	Record
	Why string
}

// ReadLetter reads a dead letter. Its Nats-Msg-Id must differ from that of the event, which may
// still be published.
func (r *Reader) ReadLetter(m Message) Letter {
	id := m.Header["Nats-Msg-Id"]
	m.Subject, m.Header = "", nil
	may, whole := r.MayTruncate, r.Whole
	r.MayTruncate = true // A dead letter may be truncated to fit.
	rec := r.Read(m)
	r.MayTruncate, r.Whole = may, whole
	var e envelope
	_ = json.Unmarshal(m.Body, &e) // Read has reported the error.
	if e.DeadReason == "" {
		rec.Problems = append(rec.Problems, "dead letter without deadletterreason")
	}
	if len(id) > 0 && id[0] == msgID(e.Source, e.ID) {
		rec.Problems = append(rec.Problems, "dead letter with the Nats-Msg-Id of its event")
	}
	if rec.Stream != "" {
		rec.Problems = append(rec.Problems, "stream event in the dead letters")
	}
	return Letter{rec, e.DeadReason}
}
