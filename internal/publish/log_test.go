package publish_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// A stale broker reports the previous log after an acknowledgement has revealed the replacement:
// that is not a second replacement.
func TestLogIsReplacedOnceBesideABrokerThatLags(t *testing.T) {
	l, replaced := publish.NewLog("x"), 0
	l.OnReplaced(func(string, string) { replaced++ })
	l.Looked("old")
	l.NoteRepeatedPosition()
	if !l.Looked("old") {
		t.Error("the identity of the log before is taken at once")
	}
	l.Looked("new")
	if replaced != 1 {
		t.Errorf("replaced %d times, want once", replaced)
	}
	if known := l.Known(); len(known) != 1 || known[0].ID != "new" {
		t.Errorf("known: %+v", known)
	}
}

// logs are Logs that take the events of all resources. They record their replacements.
type logs struct {
	*publish.Logs
	replaced []string // "<log> <evidence>"
}

func newLogs() *logs {
	l := &logs{Logs: publish.NewLogs(func(string, *object.Resource, string) bool { return true })}
	l.OnReplaced(func(name, why string) { l.replaced = append(l.replaced, name+" "+why) })
	return l
}

// find looks at a log of the cluster "c", and reports whether another look is needed soon.
func (l *logs) find(name, id string, ends ...uint64) bool {
	return l.NoteFound(l.Look(name), "c", id, ends)
}

// The next run gets all that is known about a log, and no log about which nothing is known.
func TestLogsKeepWhatIsKnown(t *testing.T) {
	l := newLogs()
	l.Restore([]publish.Log{
		{Name: "acknowledged", Acked: []uint64{0, 7, 0}},
		{Name: "cluster", Cluster: "c"},
		{Name: "identity", ID: "1"},
		{Name: "nothing"},
		{Name: "nothing acknowledged", Acked: []uint64{0, 0}},
		{Name: "replaced", Replaced: 3},
	}, 2)
	l.Tail("first", 1).NoteAcked(publish.Mark{}, 4, 5)
	want := []publish.Log{
		{Name: "acknowledged", Acked: []uint64{0, 7}},
		{Name: "cluster", Cluster: "c"},
		{Name: "first", Acked: []uint64{0, 5}},
		{Name: "identity", ID: "1"},
		{Name: "replaced", Replaced: 3},
	}
	if diff := cmp.Diff(want, l.Known()); diff != "" {
		t.Error(diff)
	}
	if s := l.State(); s.Logs != 7 || s.Unknown != 6 {
		t.Errorf("the state is %+v, want 7 logs, 6 without identity", s)
	}
}

// Topics may come and go by the thousands: the most recently used logs are kept, and the
// acknowledged positions of fewer.
func TestLogsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, ends = 500, 6000
		l := newLogs()
		name := func(n int) string { return fmt.Sprintf("log-%03d", n) }
		for n := range most {
			l.Tail(name(n), 0)
			sleep(1)
		}
		if got := len(l.Names()); got != most {
			t.Errorf("%d logs of %d are kept", got, most)
		}
		l.Tail(name(most), 0)
		l.Tail(name(most+1), 0)
		names := l.Names()
		if len(names) != most || slices.Contains(names, name(0)) || slices.Contains(names, name(1)) {
			t.Errorf("%d logs are kept, the oldest of them: %t, %t", len(names), slices.Contains(names, name(0)),
				slices.Contains(names, name(1)))
		}

		l = newLogs()
		l.Tail("a", 0).NoteAcked(publish.Mark{}, 0, 9)
		sleep(1)
		l.Tail("b", ends-1).NoteAcked(publish.Mark{}, 0, 9)
		l.find("b", "2")
		known := l.Known()
		if len(known) != 1 || len(known[0].Acked) != ends {
			t.Fatalf("%d logs are known, want b with its positions", len(known))
		}
	})
}

// A log ends below its last acknowledged position if it was created again, or for a moment if one
// broker lags. So the log counts as replaced after three short looks.
func TestShortLogIsLookedAtAgain(t *testing.T) {
	const lost = "x it has lost acknowledged records"
	for name, c := range map[string]struct {
		acked, ends []uint64
		isShort     bool
	}{
		"as long":                {[]uint64{7}, []uint64{7}, false},
		"longer":                 {[]uint64{7}, []uint64{9}, false},
		"shorter":                {[]uint64{7}, []uint64{6}, true},
		"one partition shorter":  {[]uint64{7, 7}, []uint64{9, 6}, true},
		"without a partition":    {[]uint64{7, 7}, []uint64{9}, true},
		"nothing acknowledged":   {[]uint64{0, 7}, []uint64{0, 7}, false},
		"with another partition": {[]uint64{7}, []uint64{7, 0}, false},
		"of an unknown end":      {[]uint64{7}, nil, false},
		"of one unknown end":     {[]uint64{7}, []uint64{publish.UnknownEnd}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogs()
			l.Restore([]publish.Log{{Name: "x", Cluster: "c", ID: "1", Acked: c.acked}}, 4)
			for look := range 2 {
				if again := l.find("x", "1", c.ends...); again != c.isShort {
					t.Errorf("look %d asks for another one: %t", look+1, again)
				}
			}
			if len(l.replaced) > 0 {
				t.Fatalf("after two looks: %v", l.replaced)
			}
			if l.find("x", "1", c.ends...) {
				t.Error("the third look asks for another one")
			}
			want := publish.Log{Name: "x", Cluster: "c", ID: "1", Acked: c.acked}
			var replaced []string
			if c.isShort {
				want.Acked, want.Replaced = nil, 5
				replaced = []string{lost}
			}
			if diff := cmp.Diff([]publish.Log{want}, l.Known()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(replaced, l.replaced); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The three short looks must be consecutive: a look that finds nothing wrong resets their count.
func TestShortLooksCountInARow(t *testing.T) {
	l := newLogs()
	l.Restore([]publish.Log{{Name: "x", Cluster: "c", ID: "1", Acked: []uint64{7}}}, 0)
	for range 5 {
		l.find("x", "1", 6)
		l.find("x", "1", 6)
		l.find("x", "1", 7)
	}
	if len(l.replaced) > 0 {
		t.Error(l.replaced)
	}
}

// Another identity is a replacement at once, unless it is an earlier one of the log: a broker that
// lags may report that. Eight earlier ones are known.
func TestEarlierIdentityIsLookedAtAgain(t *testing.T) {
	l := newLogs()
	for n := range 10 {
		if l.find("x", fmt.Sprint(n)) {
			t.Errorf("identity %d is looked at again", n)
		}
	}
	if len(l.replaced) != 9 || l.replaced[8] != "x its id is 9 instead of 8" {
		t.Errorf("replaced: %v", l.replaced)
	}
	for look, again := range []bool{true, true, false} {
		if got := l.find("x", "1"); got != again {
			t.Errorf("look %d at an earlier identity asks for another one: %t", look+1, got)
		}
	}
	if l.find("x", "0") {
		t.Error("an identity that is forgotten is looked at again")
	}
	if known := l.Known(); len(known) != 1 || known[0].ID != "0" || known[0].Replaced != 11 {
		t.Errorf("known: %+v", known)
	}
}

// Last returns the last replacement of a log that a resource's events may go to, and the time of
// the last look that found the former log whole.
func TestLastReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := &object.Resource{Name: "nodes"}
		l := logs{Logs: publish.NewLogs(func(name string, r *object.Resource, _ string) bool {
			return r == pods || name != "pods"
		})}
		check := func(r *object.Resource, number uint64, since time.Time) {
			t.Helper()
			if n, from := l.Last(r, ""); n != number || !from.Equal(since) {
				t.Errorf("%s: replacement %d since %s, want %d since %s", r, n, from, number, since)
			}
		}
		l.find("all", "1")
		l.find("pods", "1")
		check(pods, 0, time.Time{})
		whole := time.Now()
		sleep(time.Second)
		l.find("pods", "2")
		check(pods, 1, whole)
		check(nodes, 0, time.Time{})
		sleep(time.Second)
		l.find("all", "2")
		check(pods, 2, whole)
		check(nodes, 2, whole)
	})
}

// An acknowledgement of records below the last acknowledged one does not move the end of the log.
func TestTail(t *testing.T) {
	l := newLogs()
	tail := l.Tail("x", 0)
	before := tail.Mark()
	for _, c := range []struct{ first, end, want uint64 }{{4, 5, 5}, {2, 3, 5}, {5, 7, 7}} {
		if !tail.NoteAcked(before, c.first, c.end) {
			t.Errorf("%d was taken before", c.first)
		}
		if got := l.Look("x").Acked[0]; got != c.want {
			t.Errorf("after %d to %d, the log ends at %d, want %d", c.first, c.end, got, c.want)
		}
	}
	if tail.NoteAcked(tail.Mark(), 6, 8) || !tail.NoteAcked(tail.Mark(), 7, 8) {
		t.Error("position 6 was taken before, 7 was not")
	}
}
