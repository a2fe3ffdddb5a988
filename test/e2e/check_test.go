package e2e_test

import (
	"testing"
	"time"
)

// check waits until the stream has what etcd's history up to now says it must have, judges it and reports the faults.
// The snapshot of each resource's scopes has to have begun.
func check(t testing.TB, p *plane, s *stream, v view, resources ...string) verdict {
	t.Helper()
	return checkIdle(t, p, s, v, 20*time.Second, resources...)
}

// checkIdle is check for a stream that may lack something: it takes it as it is when nothing has come for the time idle.
func checkIdle(t testing.TB, p *plane, s *stream, v view, idle time.Duration, resources ...string) verdict {
	t.Helper()
	v.Until = p.now(t)
	want := expect(p.history.of(resources...), v)
	s.waitFor(t, want, idle)
	if s.laneOf != nil || len(s.buried()) > 0 { // There is more than one place to read.
		settled(t, 500*time.Millisecond, time.Minute, s.readUpTo(v.Until))
	}
	records := s.all()
	v.Dead = s.buried()
	got := s.judge(want, records, v)
	report(t, p, s, got.Faults)
	if got.Expected == 0 {
		t.Errorf("no record of %v is expected: nothing is compared", resources)
	}
	if len(v.Dead) > 0 && !v.MayBury {
		t.Errorf("%d dead letters, where the bus refuses nothing for good", len(v.Dead))
	}
	report(t, p, s, s.judgeLetters())
	if !v.NoReads {
		report(t, p, s, s.judgeSnapshots(records))
	}
	return got
}

// noGaps fails the test where history was lost, in a test where none may be.
func (v *verdict) noGaps(t testing.TB) {
	t.Helper()
	if len(v.Gaps) > 0 || v.Inferred > 0 {
		t.Errorf("%d gaps and %d inferred deltas, where no history was lost", len(v.Gaps), v.Inferred)
	}
}
