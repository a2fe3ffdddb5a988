package store

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// buslog is a log that may be replaced.
type buslog struct {
	number uint64
	since  time.Time // when the former log was last known to be whole
}

func (b *buslog) options(o *Options) {
	o.Snapshots = true
	o.Replaced = func() (uint64, time.Time) { return b.number, b.since }
}

// sinceOf returns the time in the last gap that was sent.
func (x *script) sinceOf() time.Time {
	x.lane.mu.Lock()
	defer x.lane.mu.Unlock()
	for _, d := range x.lane.items {
		if d.Stream != nil && d.Stream.Kind == object.Gap {
			return d.Stream.Since
		}
	}
	return time.Time{}
}

// If the log is replaced, the scope says so, begins again, and sends its objects.
func TestLogIsReplaced(t *testing.T) {
	var b buslog
	scripted(t, b.options, func(x *script) {
		x.observe(10, at("a", "1", 5))
		sleep(time.Hour)
		x.s.Rebase() // nothing has happened
		x.ends()
		since := time.Now().Add(-time.Minute)
		b = buslog{number: 1, since: since}
		x.s.Rebase()
		x.sends("gap 1-10 checkpoint-lost")
		if got := x.sinceOf(); !got.Equal(since) {
			x.t.Errorf("the gap is since %s, want %s", got, since)
		}
		if p, _ := x.s.Position(); p.Log != 0 || x.s.LogNumber() != 1 || x.s.Report(since).ResourceVersion != 0 {
			x.t.Errorf("before the gap, the log is %d", p.Log)
		}
		x.ends("scope.started 10", "snapshot.started 10 of 1", "r a@5", "snapshot.completed 10 of 1")
		if p, _ := x.s.Position(); p.Log != 1 || x.s.Report(since).ResourceVersion != 10 {
			x.t.Errorf("after the gap, the log is %d", p.Log)
		}
	})
}

// Changes wait for the gap. A scope without snapshots has none afterwards.
func TestChangesWaitForTheGapOfALog(t *testing.T) {
	var b buslog
	scripted(t, func(o *Options) { b.options(o); o.Snapshots = false }, func(x *script) {
		x.observe(10, at("a", "1", 5))
		b.number = 1
		x.s.Rebase()
		go x.s.Apply(x.ctx, []Event{event(watch.Modified, at("a", "1", 11))}, func() {})
		x.sends("gap 1-10 checkpoint-lost")
		x.ends("scope.started 10", "u a@11 after 5 by me")
	})
}

// Another replacement after the gap of the first has a gap of its own. One snapshot follows both.
func TestLogIsReplacedTwice(t *testing.T) {
	var b buslog
	scripted(t, b.options, func(x *script) {
		x.observe(10, at("a", "1", 5))
		sleep(time.Hour)
		first := time.Now().Add(-time.Minute)
		b = buslog{number: 1, since: first}
		x.s.Rebase()
		synctest.Wait()
		b = buslog{number: 2, since: time.Now()}
		x.ends("gap 1-10 checkpoint-lost", "gap 1-10 checkpoint-lost", "scope.started 10", "snapshot.started 10 of 1",
			"r a@5", "snapshot.completed 10 of 1")
		if p, _ := x.s.Position(); p.Log != 2 {
			x.t.Errorf("the log is %d, want 2", p.Log)
		}
	})
}

// A snapshot whose log is replaced is given up, and another one follows.
func TestLogIsReplacedDuringASnapshot(t *testing.T) {
	var b buslog
	scripted(t, b.options, func(x *script) {
		x.load(Fresh, 10, []*Notice{x.s.NewSnapshot(10, true)}, at("a", "1", 5), at("b", "2", 6))
		x.sends("scope.started 10 initial")
		x.lane.acknowledge(1)
		x.sends("snapshot.started 10 of 2 initial")
		x.lane.acknowledge(1)
		x.sends("r a@5", "r b@6")
		b.number++
		x.ends("gap 1-10 checkpoint-lost", "scope.started 10", "snapshot.started 10 of 2 initial", "r a@5", "r b@6",
			"snapshot.completed 10 of 2")
	})
}

// A snapshot that has not begun follows the gap as it is.
func TestLogIsReplacedBeforeTheSnapshot(t *testing.T) {
	var b buslog
	scripted(t, b.options, func(x *script) {
		b.number = 1
		x.load(Fresh, 10, []*Notice{x.s.NewSnapshot(10, true)}, at("a", "1", 5))
		x.sends("gap 1-10 checkpoint-lost")
		if !x.s.View().Sweeping {
			x.t.Error("the snapshot is dropped")
		}
		x.ends("scope.started 10 initial", "snapshot.started 10 of 1 initial", "r a@5", "snapshot.completed 10 of 1")
		if x.s.View().Sweeping {
			x.t.Error("another snapshot is to follow")
		}
	})
}

// A run continues with the log of its checkpoint.
func TestLogWasReplacedSinceTheCheckpoint(t *testing.T) {
	seen := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		log, number uint64
		want        string
	}{
		"the same log": {1, 1, ""},
		"another log":  {1, 2, "gap 1-10 checkpoint-lost"},
	} {
		t.Run(name, func(t *testing.T) {
			b := buslog{number: c.number, since: seen.Add(time.Hour)}
			scripted(t, b.options, func(x *script) {
				from := &checkpoint.Scope{ResourceVersion: 10, Log: c.log, LastSeen: seen}
				x.s.Continue(from)
				x.s.Resume(from)
				x.load(AtCheckpoint, 10, nil, at("a", "1", 5))
				synctest.Wait()
				if got := x.sinceOf(); c.want != "" && !got.Equal(seen) {
					x.t.Errorf("the gap is since %s, want %s", got, seen)
				}
				if c.want == "" {
					x.ends("scope.started 10 continued")
					return
				}
				x.ends(c.want, "scope.started 10", "snapshot.started 10 of 1", "r a@5", "snapshot.completed 10 of 1")
			})
		})
	}
}
