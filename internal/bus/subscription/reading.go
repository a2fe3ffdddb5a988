package subscription

import (
	"context"
	"errors"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// idle is how long Next waits for an event before it returns the reader's position.
const idle = 10 * time.Second

// ErrElsewhere is wrapped by the error of Save after a later relay of the same name has taken the
// cursor.
var ErrElsewhere = errors.New("another relay of this name is running")

// Reading converts the events of a Reader to records. It belongs to the goroutine that calls Next.
type Reading struct {
	consume.Reader
	filtered bool                   // the bus filters records
	known    map[consume.Log]uint64 // the next position, by log
	passed   []*driver.Record       // for Next to return
}

// NewReading returns the Reading of a Reader that begins at the positions from; filtered: the bus
// filters records.
func NewReading(r consume.Reader, filtered bool, from ...consume.Position) *Reading {
	known := map[consume.Log]uint64{}
	for _, p := range from {
		known[p.Log] = p.Next
	}
	return &Reading{Reader: r, filtered: filtered, known: known}
}

var errWaited = errors.New("no record has come")

// Next returns the next record. Its error is a *consume.MissedError, the reader's final error, or
// the cause of ctx. While no event comes, it periodically returns the reader's position, so that
// the cursor passes records that are unselected or not events.
func (r *Reading) Next(ctx context.Context) (*driver.Record, error) {
	for {
		if len(r.passed) > 0 {
			rec := r.passed[0]
			r.passed = r.passed[1:]
			return rec, nil
		}
		limited, cancel := context.WithTimeoutCause(ctx, idle, errWaited)
		e, err := r.Reader.Next(limited)
		cancel()
		var missed *consume.MissedError
		var unreadable *consume.RecordError
		switch {
		case err == nil:
			return r.newRecord(e.Position, e, nil), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errWaited):
			r.addPassed()
		case errors.As(err, &unreadable):
			return r.newRecord(unreadable.Position, nil, unreadable.Err), nil
		case errors.As(err, &missed) && missed.Recreated:
			for _, p := range r.Positions() {
				if p.Name == missed.Log.Name && p.Partition == missed.Log.Partition {
					r.known[p.Log] = p.Next
				}
			}
			return nil, err
		default:
			return nil, err
		}
	}
}

func (r *Reading) newRecord(at consume.Position, e *consume.Event, err error) *driver.Record {
	rec := &driver.Record{
		Log:      at.Log,
		Position: at.Next - 1,
		Event:    e,
		Err:      err,
		Copies:   1,
	}
	if known, ok := r.known[at.Log]; ok && r.filtered && at.Next > known {
		rec.LeftOut = at.Next - known - 1
	}
	r.known[at.Log] = at.Next
	return rec
}

// addPassed adds records for the positions that the reader has passed without an event.
func (r *Reading) addPassed() {
	for _, at := range r.Positions() {
		known, ok := r.known[at.Log]
		if ok && at.Next > known {
			rec := &driver.Record{Log: at.Log, Position: at.Next - 1, NoRecord: true}
			if r.filtered {
				rec.LeftOut = at.Next - known
			}
			r.passed = append(r.passed, rec)
		}
		r.known[at.Log] = at.Next
	}
}
