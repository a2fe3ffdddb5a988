package world

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// Check waits until the stream has the records that etcd's history up to now requires, judges them
// and reports the faults. The snapshot of each resource's scopes must have started.
func Check(t testing.TB, p *Plane, s *Stream, v oracle.View, resources ...string) oracle.Verdict {
	t.Helper()
	return CheckIdle(t, p, s, v, 20*time.Second, resources...)
}

// CheckIdle is Check for a stream that may lack records: it stops waiting when no record has
// arrived for the time idle.
func CheckIdle(
	t testing.TB, p *Plane, s *Stream, v oracle.View, idle time.Duration, resources ...string,
) oracle.Verdict {
	t.Helper()
	v.Until = p.Now(t)
	want := oracle.Expect(p.History.Of(resources...), v)
	s.WaitFor(t, want, idle)
	if s.laneOf != nil || len(s.DeadObjects()) > 0 { // Several goroutines read the bus.
		wait.Settled(t, 500*time.Millisecond, time.Minute, s.readUpTo(v.Until))
	}
	records := s.All()
	v.Dead = s.DeadObjects()
	got := s.Judge(want, records, v)
	Report(t, p, s, got.Faults)
	Report(t, p, s, s.lanes().JudgeProgress(want, records, oracle.Outside{Limit: busLimit}))
	if got.Expected == 0 {
		t.Errorf("no record of %v is expected: nothing is compared", resources)
	}
	if len(v.Dead) > 0 && !v.MayBury {
		oracle.Fail(t, "%d dead letters, where the bus refuses nothing for good", len(v.Dead))
	}
	Report(t, p, s, s.judgeLetters())
	if !v.NoReads {
		Report(t, p, s, s.JudgeSnapshots(records))
	}
	return got
}
