package consume

import (
	"cmp"
	"errors"
	"fmt"
)

var (
	// ErrNotKubecdc is wrapped by errors about well-formed records that are not events of kubecdc,
	// for example CloudEvents of another producer.
	ErrNotKubecdc = errors.New("not an event of kubecdc")

	// ErrNoStream is wrapped by errors about a stream that does not exist: the agent has not
	// created it yet, it has another name, or it was deleted.
	ErrNoStream = errors.New("no stream")

	// ErrReference is wrapped by errors about a reference that Whole cannot follow, because its
	// scheme is not nats-obj. The referenced content is a record in structured mode, which Parse
	// reads.
	ErrReference = errors.New("not a reference into JetStream's object store")
)

// RecordError reports a record that cannot be read. The next call continues after it.
type RecordError struct {
	Position Position // after the record; zero if it was not read from a Source
	Where    string   // "stream KUBECDC, record 48211 (kubecdc.prod.x)", "line 7"
	// About is what the subject or the key of the record says of its content.
	About About
	Err   error // what is wrong with it, as Parse returns it
}

func (e *RecordError) Error() string { return e.Where + ": " + e.Err.Error() }

// Unwrap returns what is wrong with the record.
func (e *RecordError) Unwrap() error { return e.Err }

// MissedError reports that records were removed before the reader had read them: the reader was
// away for longer than the log keeps records, or the log was created again. The next call continues
// after them. A consumer that keeps state starts over from a snapshot.
type MissedError struct {
	Log Log // that has been read so far
	// Sequences or offsets of the records, both included. If the bus leaves out records that were
	// not asked for, the removed records may be such records.
	From, To uint64
	// Recreated reports that the log is another one than before: it was deleted and created again,
	// or restored from an older copy. It is read from its beginning. To is its last record.
	Recreated bool

	// What names the log for people: "topic kubecdc.prod, partition 3"; "": a stream of the name in
	// Log.
	What string
}

func (e *MissedError) Error() string {
	log := cmp.Or(e.What, "stream "+e.Log.Name)
	if e.Recreated {
		return fmt.Sprintf("%s was recreated or restored: it was read up to record %d and now ends at record %d; "+
			"reading continues from its beginning", log, e.From-1, e.To)
	}
	return fmt.Sprintf("%s no longer has records %d to %d, which were not read: they expired or were removed", log,
		e.From, e.To)
}

// WithoutStore is Reader.Whole of a Source whose bus has no store of whole events.
func WithoutStore(e *Event) (*Event, error) {
	if e.DataRef == "" {
		return e, nil
	}
	return e, fmt.Errorf("the whole of %s is at %q: %w", e.ID, e.DataRef, ErrReference)
}
