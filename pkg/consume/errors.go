package consume

import (
	"errors"
	"fmt"
)

var (
	// ErrNotKubecdc is wrapped by errors about records that are well-formed and no events of kubecdc: another producer's
	// CloudEvents, say.
	ErrNotKubecdc = errors.New("not an event of kubecdc")

	// ErrNoStream is wrapped by errors about a stream that does not exist: the agent has not made it yet, it has another
	// name, or it has been deleted.
	ErrNoStream = errors.New("no stream")
)

// RecordError says that a record cannot be read. The next call goes on behind it.
type RecordError struct {
	Where string // "stream KUBECDC, record 48211 (kubecdc.prod.x)", "line 7"
	Err   error  // what is wrong with it, as Parse says
}

func (e *RecordError) Error() string { return e.Where + ": " + e.Err.Error() }

// Unwrap is what is wrong with the record.
func (e *RecordError) Unwrap() error { return e.Err }

// MissedError says that records are gone which the reader had not read: it was away for longer than the stream keeps them,
// or the stream is another one than before. What they said is not known. Reading goes on behind them with the next call;
// a consumer that keeps state starts over from a snapshot.
type MissedError struct {
	Stream string
	// Sequences in the stream, both included. With JetStreamOptions.Subjects some of these records were not asked for, or were read: nobody
	// knows what was removed.
	From, To uint64
	// Recreated: the stream is another one. It was deleted and created again, or restored from an older copy. To is its last.
	Recreated bool
}

func (e *MissedError) Error() string {
	if e.Recreated {
		return fmt.Sprintf("stream %s is another one than before: it was read up to record %d, and ends at %d now: it has been "+
			"created anew or restored; reading goes on from its beginning", e.Stream, e.From-1, e.To)
	}
	return fmt.Sprintf("stream %s no longer holds records %d to %d, which have not been read: they are older than it keeps them, "+
		"or were removed", e.Stream, e.From, e.To)
}
