package informers_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers"
)

// TestTimesAreThoseOfTheRun gives the manager a clock that stands still: every event, of an object
// or of the stream, has its time.
func TestTimesAreThoseOfTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("old", "1", nil)
		at := time.Now().Add(time.Hour)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Now = func() time.Time { return at }
		})
		l.wait(t, "snapshot.started 1", "r old uid-1 -→1", "snapshot.completed 1")
		s.put("new", "1", nil)
		s.delete("old")
		l.wait(t, "snapshot.started 1", "r old uid-1 -→1", "snapshot.completed 1", "c new uid-2 -→1", "d old uid-1 1→-")
		<-time.After(2 * time.Minute) // progress follows
		l.mu.Lock()
		told := len(l.told)
		for _, d := range slices.Concat(l.deltas, l.told) {
			if got := time.Unix(0, d.Observed); !got.Equal(at) {
				t.Errorf("%v: time %v, want %v", d, got, at)
			}
		}
		l.mu.Unlock()
		if told == 0 {
			t.Error("there is no progress")
		}
		l.end()
		if c, ok := m.saved("configmaps"); !ok ||
			!c.LastSeen.Equal(at.UTC().Truncate(time.Second)) && !c.LastSeen.Equal(at) {
			t.Errorf("the checkpoint was last seen at %v, want %v", c.LastSeen, at)
		}
	})
}
