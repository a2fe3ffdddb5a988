package clock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/clock"
)

// seconds formats a time as seconds since 1970.
func seconds(t time.Time) string { return fmt.Sprintf("%.1f", float64(t.UnixMilli())/1000) }

// story is a machine with a clock, and what the clock has report.
type story struct {
	*clock.Machine
	clock *clock.Clock
	found []string
}

func begin() *story {
	s := &story{Machine: clock.NewMachine()}
	s.clock = s.Clock(func(i clock.Interruption) {
		s.found = append(s.found, fmt.Sprintf("%s %s to %s", i.Why, seconds(i.From), seconds(i.To)))
	})
	return s
}

// live lets time pass with a reading every half second, and returns the time then.
func (s *story) live(d time.Duration) string {
	for ; d > 0; d -= 500 * time.Millisecond {
		s.Pass(min(d, 500*time.Millisecond))
		s.clock.Tick()
	}
	return seconds(s.clock.Now())
}

func (s *story) want(t *testing.T, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, s.found); d != "" {
		t.Errorf("interruptions (-want +got):\n%s", d)
	}
}

func (s *story) wantTime(t *testing.T, want, got string) {
	t.Helper()
	if got != want {
		t.Errorf("the time is %s, want %s", got, want)
	}
}

func TestTimesStandStillAfterAStepBack(t *testing.T) {
	t.Parallel()
	s := begin()
	s.live(10 * time.Second)
	s.Set(-30 * time.Second)
	s.wantTime(t, "1010.0", seconds(s.clock.Now())) // the step is detected when a time is asked for
	s.wantTime(t, "1010.0", s.live(29*time.Second))
	s.wantTime(t, "1015.0", s.live(6*time.Second))
	s.want(t, "stepped 980.0 to 1010.0")
}

func TestTimesFollowAStepForward(t *testing.T) {
	t.Parallel()
	s := begin()
	s.live(10 * time.Second)
	s.Set(30 * time.Second)
	s.wantTime(t, "1040.5", s.live(500*time.Millisecond)) // nobody has asked for the time meanwhile
	s.wantTime(t, "1045.5", s.live(5*time.Second))
	s.want(t, "stepped 1010.0 to 1040.5")
}

func TestAStepThatIsTakenBack(t *testing.T) {
	t.Parallel()
	s := begin()
	s.Set(-30 * time.Second)
	s.wantTime(t, "1000.5", s.live(10*time.Second))
	s.Set(30 * time.Second)
	s.wantTime(t, "1015.0", s.live(5*time.Second))
	s.want(t, "stepped 970.5 to 1000.5", "stepped 1000.5 to 1010.5")
}

// TestASuspendedMachine has the same clocks as Linux: the monotonic one stands still.
func TestASuspendedMachine(t *testing.T) {
	t.Parallel()
	s := begin()
	s.live(10 * time.Second)
	s.Set(time.Hour)
	s.live(500 * time.Millisecond)
	s.want(t, "stepped 1010.0 to 4610.5")
}

func TestAStoppedProcess(t *testing.T) {
	t.Parallel()
	s := begin()
	s.live(10 * time.Second)
	s.Pass(1400 * time.Millisecond) // a stop below two seconds
	s.live(500 * time.Millisecond)
	s.want(t)
	s.Pass(2 * time.Second)
	s.wantTime(t, "1013.9", seconds(s.clock.Now())) // the first to ask detects it
	s.live(10 * time.Second)
	s.want(t, "stopped 1011.9 to 1013.9")
}

// TestAStoppedProcessWhoseClockIsSet has both at a time: the interruption covers both.
func TestAStoppedProcessWhoseClockIsSet(t *testing.T) {
	t.Parallel()
	s := begin()
	s.live(10 * time.Second)
	s.Pass(20 * time.Second)
	s.Set(-30 * time.Second)
	s.live(500 * time.Millisecond)
	s.want(t, "stepped 1000.5 to 1030.5")
}

// TestSlewsDoNotAccumulate sets the clock by a tenth of a second each 30 s, for a day.
func TestSlewsDoNotAccumulate(t *testing.T) {
	t.Parallel()
	for _, slew := range []time.Duration{100 * time.Millisecond, -100 * time.Millisecond} {
		s := begin()
		for range 24 * 60 * 2 {
			s.live(30 * time.Second)
			s.Set(slew)
		}
		s.live(500 * time.Millisecond)
		s.want(t)
		if ahead := s.clock.Ahead(); ahead > 0 {
			t.Errorf("slews of %v: the time is %v ahead of the wall clock", slew, ahead)
		}
	}
}

func TestManySmallStepsAreAStep(t *testing.T) {
	t.Parallel()
	s := begin()
	for range 2 {
		s.live(time.Second)
		s.Set(-600 * time.Millisecond)
	}
	s.live(500 * time.Millisecond)
	s.want(t, "stepped 1001.3 to 1001.9")
}

func TestTimesBeginAfterThoseOfThePredecessor(t *testing.T) {
	t.Parallel()
	s := begin()
	s.clock.Begin(time.Unix(1030, 0))
	s.clock.Begin(time.Time{})
	s.clock.Begin(time.Unix(900, 0))
	if got, want := s.clock.Ahead(), 30*time.Second; got != want {
		t.Errorf("the time is %v ahead of the wall clock, want %v", got, want)
	}
	s.wantTime(t, "1030.0", s.live(30*time.Second))
	s.wantTime(t, "1035.0", s.live(5*time.Second))
	s.want(t)
}

// TestRunNoticesInAQuietCluster asks for no time.
func TestRunNoticesInAQuietCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		m := clock.NewMachine()
		found := make(chan clock.Interruption, 1)
		c := m.Locked(&mu, func(i clock.Interruption) { found <- i })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx) })
		synctest.Wait()
		mu.Lock()
		m.Set(time.Minute)
		mu.Unlock()
		began := time.Now()
		i := <-found
		if d := time.Since(began); i.Why != clock.Stepped || i.Step != time.Minute || d > time.Second {
			t.Errorf("report %+v after %v", i, d)
		}
		cancel()
		running.Wait()
	})
}

// TestTimesNeverGoBack does anything to the clocks.
func TestTimesNeverGoBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := begin()
		last := s.clock.Now()
		var to time.Time
		s.clock = s.Clock(func(i clock.Interruption) {
			if i.To.Before(i.From) {
				t.Fatalf("an interruption from %v to %v", i.From, i.To)
			}
			to = i.To
		})
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			d := time.Duration(rapid.IntRange(0, 5000).Draw(t, "passed")) * time.Millisecond
			set := time.Duration(rapid.IntRange(-40_000, 40_000).Draw(t, "set")) * time.Millisecond
			s.Pass(d)
			s.Set(set)
			if rapid.Bool().Draw(t, "tick") {
				s.clock.Tick()
			}
			now := s.clock.Now()
			if now.Before(last) {
				t.Fatalf("the time went back from %v to %v", last, now)
			}
			if to.After(now) {
				t.Fatalf("an interruption ends at %v, after the time %v", to, now)
			}
			last = now
		}
	})
}
