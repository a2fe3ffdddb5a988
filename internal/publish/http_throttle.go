package publish

import (
	"context"
	"sync"
	"time"
)

func throttleBackoff() Backoff {
	return Backoff{First: 200 * time.Millisecond, Limit: 30 * time.Second}
}

// throttle holds requests back while the receiver wants none: until the time that it asked for, and then all but one, until
// that one has got through. So a receiver that comes back is not met by all who waited.
type throttle struct {
	mu      sync.Mutex
	until   time.Time       // zero: open
	rounds  int             // in a row that ended with the receiver's no
	epoch   uint64          // counts them all
	probing bool            // one is under way
	changed chan struct{}   // closed, and made anew, when somebody who waits may go
	over    <-chan struct{} // closed at the end of Run
}

// pass is the right to send one request, to be given back.
type pass struct {
	epoch uint64
	probe bool
}

// enter waits for its turn; false: ctx or Run has ended.
func (t *throttle) enter(ctx context.Context) (pass, bool) {
	for {
		t.mu.Lock()
		wait := time.Duration(0)
		if !t.until.IsZero() {
			wait = time.Until(t.until)
		}
		if wait <= 0 && !t.probing {
			t.probing = !t.until.IsZero()
			p := pass{epoch: t.epoch, probe: t.probing}
			t.mu.Unlock()
			return p, true
		}
		changed := t.changed
		t.mu.Unlock()
		if !await(ctx, t.over, changed, wait) {
			return pass{}, false
		}
	}
}

// await waits for changed, or at most for d where that is positive; false: ctx or over has ended.
func await(ctx context.Context, over, changed <-chan struct{}, d time.Duration) bool {
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-changed:
	case <-over:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// leave gives the pass back with what became of the request. Of the many that were on their way when the receiver said
// no, the first counts: the others say the same. For the same reason an answer to one of them does not open.
func (t *throttle) leave(p pass, r *httpResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.probe {
		t.probing = false
	}
	switch {
	case r.shut:
		if p.epoch == t.epoch {
			t.rounds++
			t.epoch++
		}
		d := r.wait
		if d == 0 {
			d = throttleBackoff().Delay(max(t.rounds, 1))
		}
		if until := time.Now().Add(d); p.epoch+1 == t.epoch && until.After(t.until) {
			t.until = until
		}
	case p.probe && r.kind != httpEnded:
		t.until, t.rounds = time.Time{}, 0
	}
	if p.probe {
		close(t.changed)
		t.changed = make(chan struct{})
	}
}
