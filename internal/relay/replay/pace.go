package replay

import (
	"context"
	"time"
)

// pace keeps the distances of the record.
type pace struct {
	speed float64 // of the record's time; 0: nothing waits
	first time.Time
	began time.Time // when the event of the time first was due; zero: there was none
}

// wait waits until an event of a time is due.
func (p *pace) wait(ctx context.Context, at time.Time) error {
	if p.speed == 0 {
		return nil
	}
	if p.began.IsZero() {
		p.first, p.began = at, time.Now()
	}
	due := p.began.Add(time.Duration(float64(at.Sub(p.first)) / p.speed))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
