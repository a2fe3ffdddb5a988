package informer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

// observation is a scope whose watch a test moves. Times are seconds.
type observation struct {
	coverage
	isSettled bool
	settledAt time.Time
}

// observe returns the coverage of a run that begins at 100. The previous run saw the last frame at
// 40.
func observe() *observation {
	o := &observation{isSettled: true}
	o.coverage = coverage{asks: make(chan struct{}, 1), listsSent: func() (time.Time, bool) {
		return o.settledAt, o.isSettled
	}}
	o.begin(at(40), at(100))
	return o
}

func at(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }

// opens opens a watch at a time, and proves the version of the API server right after that.
func (o *observation) opens(seconds float64, version uint64) {
	o.openWatch(false, false, at(seconds))
	o.proves(seconds, version)
}

func (o *observation) proves(seconds float64, version uint64) {
	if round, asks := o.takeQuestion(at(seconds)); asks {
		o.noteProof(round, version, at(seconds))
	}
}

func (o *observation) bookmarks(seconds float64, version uint64) {
	o.noteFrames(0, version, true, at(seconds))
}

func (o *observation) changes(seconds float64, version uint64) {
	o.noteFrames(version, version, false, at(seconds))
}

// says returns what the progress says at a time: "to 130; start 40-130".
func (o *observation) says(seconds float64) string {
	to, all := o.report(time.Time{}, at(seconds))
	out := []string{fmt.Sprintf("to %g", float64(to.UnixNano())/1e9)}
	for _, i := range all {
		until := "…"
		if !i.Until.IsZero() {
			until = fmt.Sprintf("%g", float64(i.Until.UnixNano())/1e9)
		}
		out = append(out, fmt.Sprintf("%s %g-%s", i.Why, float64(i.From.UnixNano())/1e9, until))
	}
	return strings.Join(out, "; ")
}

func TestCoverage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(o *observation)
		want    string
	}{
		"a start without a watch": {func(*observation) {}, "to 40; start 40-…"},
		"a start after which nothing has changed": {func(o *observation) {
			o.opens(101, 10)
			o.bookmarks(110, 10)
		}, "to 110"},
		"a start, and a bookmark below the version": {func(o *observation) {
			o.opens(101, 10)
			o.bookmarks(110, 9)
		}, "to 40; start 40-…"},
		"a start, and a change while the agent was away": {func(o *observation) {
			o.opens(101, 10)
			o.changes(102, 9)
			o.bookmarks(110, 10)
			o.bookmarks(120, 12)
		}, "to 120; start 40-110"},
		"a start, and the change that made the version": {func(o *observation) {
			o.opens(101, 10)
			o.changes(102, 10)
		}, "to 102; start 40-102"},
		"a start, and a change after the version": {func(o *observation) {
			o.opens(101, 10)
			o.changes(102, 11)
		}, "to 102"},
		"the answer comes after the frame": {func(o *observation) {
			o.openWatch(false, false, at(101))
			o.changes(102, 9)
			o.bookmarks(103, 10)
			o.proves(105, 10)
		}, "to 103; start 40-105"},
		"the changes of a list are not sent yet": {func(o *observation) {
			o.isSettled = false
			o.noteChange()
			o.opens(101, 10)
			o.bookmarks(110, 10)
		}, "to 40; start 40-…"},
		"the changes of a list are sent after the version is shown": {func(o *observation) {
			o.isSettled = false
			o.noteChange()
			o.opens(101, 10)
			o.bookmarks(110, 10)
			o.isSettled = true
			o.bookmarks(150, 10)
		}, "to 150; start 40-150"},
		"the version is shown by a frame that waits for the changes of a list": {func(o *observation) {
			o.noteChange()
			o.opens(101, 10)
			o.settledAt = at(160) // the frame was read at 150, and the changes before it are sent at 160
			o.bookmarks(150, 10)
		}, "to 150; start 40-160"},
		"the API server ends a watch, and nothing has changed": {func(o *observation) {
			o.live()
			o.endWatch(object.InterruptedClosed, true, at(210))
			o.opens(215, 30)
			o.bookmarks(250, 30)
		}, "to 250"},
		"the API server ends a watch, and the next one is swift": {func(o *observation) {
			o.live()
			o.endWatch(object.InterruptedClosed, true, at(210))
			o.opens(210.5, 30)
			o.changes(211, 29)
			o.changes(211.2, 31)
		}, "to 211.2"},
		"the API server ends a watch, and the next one is just swift": {func(o *observation) {
			o.live()
			o.endWatch(object.InterruptedClosed, true, at(210))
			o.opens(211, 30)
			o.changes(211.5, 29)
			o.changes(212, 31)
		}, "to 212"},
		"the API server ends a watch, and the next one opens late": {func(o *observation) {
			o.live()
			o.endWatch(object.InterruptedClosed, true, at(210))
			o.opens(211.5, 30)
			o.changes(212, 29)
			o.changes(212.2, 31)
		}, "to 212.2; closed 200-212.2"},
		"the API server ends a watch, and the next one is swift, but shows the version late": {func(o *observation) {
			o.live()
			o.endWatch(object.InterruptedClosed, true, at(210))
			o.opens(210.5, 30)
			o.changes(211, 29)
			o.changes(220, 31)
		}, "to 220; closed 200-220"},
		"a watch is cut, and the next one is swift": {func(o *observation) {
			o.live()
			o.endWatch(object.InterruptedCut, false, at(210))
			o.opens(210.5, 30)
			o.changes(210.6, 29)
			o.changes(210.7, 31)
		}, "to 210.7; cut 200-210.7"},
		"a watch that is cut, and not open again": {func(o *observation) {
			o.live()
			o.endWatch(object.InterruptedCut, false, at(210))
		}, "to 200; cut 200-…"},
		"a watch ends before it has shown the version": {func(o *observation) {
			o.live()
			o.endWatch(object.InterruptedCut, false, at(210))
			o.openWatch(false, false, at(220))
			round, _ := o.takeQuestion(at(220))
			o.changes(221, 25)
			o.endWatch(object.InterruptedClosed, true, at(230))
			o.openWatch(false, false, at(240))
			o.noteProof(round, 26, at(241)) // the answer to the question of the watch before
			o.bookmarks(242, 26)
		}, "to 200; cut 200-…"},
		"a watch with bookmarks is silent, and then sends what was held back": {func(o *observation) {
			o.live()
			o.changes(266, 21)
			o.proves(266.5, 30)
			o.changes(267, 25)
			o.changes(268, 31)
		}, "to 268; silent 200-268"},
		"a watch with bookmarks is silent, and the rest is still held back": {func(o *observation) {
			o.live()
			o.changes(266, 21)
			o.proves(266.5, 30)
			o.changes(267, 25)
		}, "to 200; silent 200-…"},
		"a watch with bookmarks is silent, and nothing has changed": {func(o *observation) {
			o.live()
			o.bookmarks(266, 30)
			o.proves(266.5, 30)
		}, "to 266"},
		"a watch with bookmarks is silent for as long as one may be": {func(o *observation) {
			o.live()
			o.changes(265, 21)
		}, "to 265"},
		"a watch without bookmarks is silent": {func(o *observation) {
			o.opens(101, 10)
			o.changes(102, 11)
			o.changes(302, 12)
		}, "to 302"},
		"the process stands still, and nothing has changed": {func(o *observation) {
			o.live()
			o.interrupt(at(230), object.InterruptedStopped, at(260))
			o.proves(260, 30)
			o.bookmarks(262, 30)
		}, "to 262"},
		"the process stands still, and a change is late": {func(o *observation) {
			o.live()
			o.interrupt(at(230), object.InterruptedStopped, at(260))
			o.changes(260, 29)
			o.proves(260, 30)
			o.bookmarks(262, 30)
		}, "to 262; stopped 200-262"},
		"the process stands still, and the late change is shown before the clock says so": {func(o *observation) {
			o.live()
			o.changes(260, 29)
			o.interrupt(at(230), object.InterruptedStopped, at(260))
			o.proves(260, 30)
			o.bookmarks(262, 30)
		}, "to 262; stopped 230-262"},
		"two interruptions of one reason, near each other": {func(o *observation) {
			o.live()
			for k := range 2 {
				begin := 210 + 2*float64(k)
				o.endWatch(object.InterruptedCut, false, at(begin))
				o.opens(begin+0.5, 30+2*uint64(k))
				o.changes(begin+0.6, 29+2*uint64(k))
				o.changes(begin+0.7, 30+2*uint64(k))
			}
		}, "to 212.7; cut 200-212.7"},
		"two interruptions of one reason, just near each other": {func(o *observation) {
			o.live()
			for k := range 2 {
				begin := 210 + 3*float64(k)
				o.endWatch(object.InterruptedCut, false, at(begin))
				o.opens(begin+0.5, 30+10*uint64(k))
				o.changes(begin+0.75, 29+10*uint64(k))
				o.changes(begin+1, 31+10*uint64(k))
				o.changes(begin+3, 32+10*uint64(k)) // two seconds later, as the next one begins
			}
		}, "to 216; cut 200-214"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := observe()
			c.happens(o)
			if d := cmp.Diff(c.want, o.says(1000)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// live lets the run begin without an interruption. The last frame is at 200.
func (o *observation) live() {
	o.opens(101, 10)
	o.bookmarks(140, 10)
	o.changes(200, 20)
}

// TestInterruptionsAreReportedForAWhile has one each 100 seconds.
func TestInterruptionsAreReportedForAWhile(t *testing.T) {
	t.Parallel()
	o := observe()
	o.live()
	version := uint64(30)
	for begin := 300.0; begin < 10_000; begin += 100 {
		o.bookmarks(begin-50, version)
		o.report(at(begin-600), at(begin-50)) // as each minute
		o.endWatch(object.InterruptedCut, false, at(begin))
		o.opens(begin+1, version)
		o.changes(begin+2, version)
		version++
	}
	_, all := o.report(at(9500), at(10_000))
	if len(all) != 5 || !all[0].Until.Equal(at(9502)) {
		t.Errorf("interruptions since 9500: %v", all)
	}
	if n := len(o.ended); n > 20 {
		t.Errorf("%d interruptions are kept", n)
	}
	for k := range 1000 {
		begin := 10_000 + 10*float64(k)
		o.bookmarks(begin-5, version)
		o.endWatch(object.InterruptedCut, false, at(begin))
		o.opens(begin+1, version)
		o.changes(begin+2, version)
		version++
	}
	_, all = o.report(at(10_000), at(20_000))
	if len(all) > maxInterruptions || !all[len(all)-1].Until.Equal(at(19_992)) {
		t.Errorf("%d interruptions, the last until %v", len(all), all[len(all)-1].Until)
	}
}

// A watch after one that held back changes may show all of its frames with its end. They end no
// interruption.
func TestInterruptionLastsUntilAWatchHoldsBackNothing(t *testing.T) {
	t.Parallel()
	o := observe()
	says := func(seconds float64, want string) {
		t.Helper()
		if got := o.says(seconds); got != want {
			t.Errorf("at %g it says %q, want %q", seconds, got, want)
		}
	}
	o.opens(100, 5)
	o.changes(101, 6)
	says(102, "to 101")
	o.endWatch(object.InterruptedSilent, false, at(220))
	o.openWatch(false, true, at(221))
	o.proves(221, 9)
	o.changes(250, 8)
	o.changes(250, 12)
	says(251, "to 101; silent 101-…")
	o.endWatch(object.InterruptedClosed, true, at(251))
	o.openWatch(false, true, at(252))
	o.proves(252, 12)
	o.changes(253, 13)
	says(253, "to 101; silent 101-…")
	o.notePassed(at(254))
	says(255, "to 253; silent 101-254")
}

// TestVersionIsAskedForOnceAMinute has watches that end again and again. Each question is a list,
// so their number is bounded. After a change the version is asked for at once, for only then an
// interruption can be reported.
func TestVersionIsAskedForOnceAMinute(t *testing.T) {
	t.Parallel()
	o := observe()
	asks := func(seconds float64, want bool) (round int) {
		t.Helper()
		select {
		case <-o.asks:
			if !want {
				t.Errorf("at %g the version is asked for", seconds)
			}
			round, _ = o.takeQuestion(at(seconds))
		default:
			if want {
				t.Errorf("at %g the version is not asked for", seconds)
			}
		}
		return round
	}
	reopens := func(seconds float64) {
		o.endWatch(object.InterruptedClosed, true, at(seconds))
		o.openWatch(false, false, at(seconds))
	}
	o.openWatch(false, false, at(101))
	asks(101, true)
	reopens(160.9)
	asks(160.9, false)
	reopens(161)
	asks(161, true)
	o.changes(162, 8)
	round := asks(162, true)
	if round == 0 {
		t.Fatal("after the change, no version is wanted")
	}
	o.noteProof(round, 10, at(163))
	o.changes(164, 9)
	asks(164, false) // the version is known
	reopens(165)
	asks(165, true)
}
