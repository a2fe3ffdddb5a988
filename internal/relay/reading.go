package relay

import (
	"context"
	"errors"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// reading makes records of what a Reader returns. It belongs to the goroutine that calls next.
type reading struct {
	consume.Reader
	filtered bool                   // the bus leaves out records that are not asked for
	known    map[consume.Log]uint64 // by log: where reading continues, as the relay knows it
	passed   []*Record              // to be returned
}

func newReading(r consume.Reader, filtered bool, from []consume.Position) *reading {
	known := map[consume.Log]uint64{}
	for _, p := range from {
		known[p.Log] = p.Next
	}
	return &reading{Reader: r, filtered: filtered, known: known}
}

var errWaited = errors.New("no record has come")

// next returns the next record. Its error is a *consume.MissedError, or what ends the reader, or ctx. While no event comes, it returns now and then how
// far the reader has passed records that are no events, or not asked for, so that the cursor passes them.
func (r *reading) next(ctx context.Context) (*Record, error) {
	for {
		if len(r.passed) > 0 {
			rec := r.passed[0]
			r.passed = r.passed[1:]
			return rec, nil
		}
		limited, cancel := context.WithTimeoutCause(ctx, checkInterval, errWaited)
		e, err := r.Next(limited)
		cancel()
		var missed *consume.MissedError
		var unreadable *consume.RecordError
		switch {
		case err == nil:
			return r.record(e.Position, e, nil), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errWaited):
			r.pass()
		case errors.As(err, &unreadable):
			return r.record(unreadable.Position, nil, unreadable.Err), nil
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

func (r *reading) record(at consume.Position, e *consume.Event, err error) *Record {
	rec := &Record{Log: at.Log, Position: at.Next - 1, Event: e, Err: err, Copies: 1}
	if known, ok := r.known[at.Log]; ok && r.filtered && at.Next > known {
		rec.LeftOut = at.Next - known - 1
	}
	r.known[at.Log] = at.Next
	return rec
}

// pass finds out what the reader has passed without an event.
func (r *reading) pass() {
	for _, at := range r.Positions() {
		known, ok := r.known[at.Log]
		if ok && at.Next > known {
			rec := &Record{Log: at.Log, Position: at.Next - 1, NoRecord: true}
			if r.filtered {
				rec.LeftOut = at.Next - known
			}
			r.passed = append(r.passed, rec)
		}
		r.known[at.Log] = at.Next
	}
}
