package e2e_test

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// readShortened takes what an event has given up from where the whole of it is.
func (r *reader) readShortened(rec *record, e *envelope, problem func(string, ...any)) {
	if e.DataRef != e.Data.DataRef {
		problem("dataref is %q, that of data %q", e.DataRef, e.Data.DataRef)
	}
	if rec.Truncated = e.Data.Truncated; len(rec.Truncated) > 0 && !r.MayTruncate {
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
	whole := r.read(message{Position: rec.Position, Lane: rec.Lane, Body: body})
	if whole.ID != rec.ID {
		problem("dataref %s: is the event %s", e.DataRef, whole.ID)
	}
	if len(whole.Truncated) > 0 || whole.Ref != "" {
		problem("dataref %s: what is there lacks %v itself", e.DataRef, whole.Truncated)
	}
	whole.Problems = append(rec.Problems, whole.Problems...)
	whole.Stored, whole.Truncated, whole.Ref = rec.Stored, rec.Truncated, e.DataRef
	*rec = whole
}

// letter is an event that the bus has refused.
type letter struct {
	record
	Why string
}

// readLetter reads what is in the dead letters. Its Nats-Msg-Id is another than that of the event, which may yet come.
func (r *reader) readLetter(m message) letter {
	id := m.Header["Nats-Msg-Id"]
	m.Subject, m.Header = "", nil
	may, whole := r.MayTruncate, r.Whole
	r.MayTruncate = true // All that there was room for.
	rec := r.read(m)
	r.MayTruncate, r.Whole = may, whole
	var e envelope
	_ = json.Unmarshal(m.Body, &e) // Said by read.
	if e.DeadReason == "" {
		rec.Problems = append(rec.Problems, "dead letter without deadletterreason")
	}
	if len(id) > 0 && id[0] == msgID(e.Source, e.ID) {
		rec.Problems = append(rec.Problems, "dead letter with the Nats-Msg-Id of its event")
	}
	if rec.Stream != "" {
		rec.Problems = append(rec.Problems, "stream event in the dead letters")
	}
	return letter{rec, e.DeadReason}
}

// deadSubject is the subject of NATS to which the dead letters go by default.
func deadSubject() string { return "kubecdc." + escape(clusterName) + ".dead" }

func (s *stream) bury(l letter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters[l.ID] = l
	s.latest = time.Now()
}

// dead is the dead letters, in no order.
func (s *stream) dead() []letter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.letters))
}

// buried is the dead letters with their objects.
func (s *stream) buried() map[string]objectKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	dead := make(map[string]objectKey, len(s.letters))
	for id := range s.letters {
		dead[id] = s.letters[id].Key
	}
	return dead
}

// judgeLetters checks the dead letters, and that there is a gap for each and a letter for each gap.
func (s *stream) judgeLetters() []fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []fault
	gaps := make(map[string]bool)
	for i := range s.records {
		rec := &s.records[i]
		if rec.Letter == "" {
			continue
		}
		gaps[rec.Letter] = true
		if _, ok := s.letters[rec.Letter]; !ok {
			faults = append(faults, fault{
				Kind: "dead letter", Position: rec.Position,
				Lane: rec.Lane, Text: rec.ID + ": no such dead letter",
			})
		}
	}
	for id, l := range s.letters {
		if !gaps[id] {
			faults = append(faults, fault{Kind: "dead letter", Key: l.Key, Rev: l.Rev, Text: id + ": no gap says that it is missing"})
		}
		for _, p := range l.Problems {
			faults = append(faults, fault{Kind: "dead letter", Key: l.Key, Rev: l.Rev, Text: p})
		}
	}
	return faults
}
