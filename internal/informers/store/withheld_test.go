package store

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// TestWhatConsumersLack follows what consumers have of an object from delta to delta.
func TestWhatConsumersLack(t *testing.T) {
	for _, c := range []struct {
		op     object.Op
		sent   bool
		before hiddenState
		want   hiddenState
		gone   int // objects that consumers may have although they are gone
	}{
		{object.Created, true, shown, shown, 0},
		{object.Updated, true, older, shown, 0},
		{object.Updated, true, absent, shown, 0},
		{object.Read, true, swept, shown, 0},
		{object.Deleted, true, older, shown, 0},
		{object.Created, false, shown, absent, 0},
		{object.Entered, false, shown, absent, 0},
		{object.Updated, false, shown, older, 0},
		{object.Updated, false, older, older, 0},
		{object.Updated, false, swept, swept, 0},
		{object.Updated, false, absent, absent, 0},
		{object.Read, false, shown, swept, 0},
		{object.Read, false, older, swept, 0},
		{object.Read, false, absent, absent, 0},
		{object.Deleted, false, shown, shown, 1},
		{object.Left, false, older, shown, 1},
		{object.Left, false, absent, shown, 0},
		{object.Deleted, false, absent, shown, 0},
	} {
		var h hiding
		got := h.afterDelta(&object.Delta{Op: c.op}, c.sent, c.before)
		if got != c.want || h.gone != c.gone {
			t.Errorf("%+v: %d, %d are gone", c, got, h.gone)
		}
	}
}

// hides checks the spans that the progress lists, and whether the position is inside one.
func (x *script) hides(want bool, spans ...string) {
	x.t.Helper()
	r := x.s.Report(time.Now())
	if diff := gocmp.Diff(spans, spansOf(r.Hidden)); diff != "" {
		x.t.Errorf("-want +got\n%s", diff)
	}
	if p, _ := x.s.Position(); !p.Filtered || p.Hides == nil || *p.Hides != want {
		x.t.Errorf("the position %d hides something: %v, want %t", p.ResourceVersion, p.Hides, want)
	}
}

// While the last version of an object is withheld, the progress says since when.
func TestSpanOfAWithheldVersion(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5), at("b", "2", 6))
		if p, _ := x.s.Position(); p.Filtered || p.Hides != nil {
			x.t.Error("something may be withheld, and there are no filters")
		}
		x.s.SetFilter(withhold{11: true, 12: true, 13: true, 16: true, 17: true}, "", nil)
		x.hides(false)
		x.watch(event(watch.Modified, at("a", "1", 11)))
		x.settle()
		x.hides(true, "11-0")
		x.watch(event(watch.Modified, at("b", "2", 12)), event(watch.Added, at("c", "3", 13)))
		x.watch(event(watch.Modified, at("a", "1", 14)))
		x.settle()
		x.hides(true, "11-0") // b and c
		x.watch(event(watch.Modified, at("b", "2", 15)))
		x.watch(event(watch.Deleted, at("c", "3", 16))) // nobody has it
		x.settle()
		x.hides(false, "11-16")
		sleep(time.Hour)
		x.watch(event(watch.Deleted, at("b", "2", 17))) // consumers still have it
		x.settle()
		x.hides(true, "17-0")
	})
}

// A snapshot of the whole scope makes consumers delete what was gone before its start.
func TestSnapshotCorrectsWithheldDeletions(t *testing.T) {
	for namespace, after := range map[string]bool{"": false, "shop": true} {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5), at("b", "2", 6), at("c", "3", 7))
			x.s.SetFilter(withhold{11: true}, "", nil)
			x.watch(event(watch.Deleted, at("a", "1", 11)))
			x.settle()
			x.hides(true, "11-0")
			answer := x.request(namespace)
			x.settle()
			<-answer
			if p, _ := x.s.Position(); p.Hides == nil || *p.Hides != after {
				x.t.Errorf("after a snapshot of %q, the position hides something: %t", namespace, *p.Hides)
			}
		})
	}
}

// A deletion that is withheld during a snapshot is not corrected by it: the bus may have the read.
func TestDeletionIsWithheldDuringASnapshot(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5), at("b", "2", 6))
		x.s.SetFilter(withhold{11: true, 12: true}, "", nil)
		x.watch(event(watch.Deleted, at("a", "1", 11)))
		x.settle()
		answer := x.request("")
		x.sends("snapshot.started 11 of 1")
		x.lane.acknowledge(1)
		<-answer
		x.sends("r b@6")
		x.watch(event(watch.Deleted, at("b", "2", 12)))
		x.ends("snapshot.completed 11 of 1")
		x.hides(true, "11-0")
	})
}

// A read that filters withhold does not count as an object of its snapshot. Consumers sweep the
// object, so they lack it afterwards.
func TestWithheldReads(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5), at("b", "2", 6), at("c", "3", 7), at("d", "4", 8))
		x.s.SetFilter(withhold{6: true, 7: true, 11: true}, "", nil)
		answer := x.request("")
		x.sends("snapshot.started 10 of 4")
		x.lane.acknowledge(1)
		<-answer
		x.sends("r a@5", "r d@8")
		// A restart would withhold b and c again, and count them among the objects.
		if p, _ := x.s.Position(); p.Snapshot.Objects != 4 || p.Snapshot.Cursor != "" {
			x.t.Errorf("the checkpoint has %+v", p.Snapshot)
		}
		x.lane.acknowledge(1)
		if p, _ := x.s.Position(); p.Snapshot.Objects != 2 || p.Snapshot.Cursor != "configmaps/shop/c" {
			x.t.Errorf("after a is acknowledged, the checkpoint has %+v", p.Snapshot)
		}
		x.ends("snapshot.completed 10 of 2")
		x.hides(true, "6-0")
		// Nobody has b, so nobody lacks its deletion.
		x.watch(event(watch.Deleted, at("b", "2", 11)), event(watch.Modified, at("c", "3", 12)))
		x.settle()
		x.hides(false, "6-12")
	})
}

// The next run does not know what the former one withheld, if its checkpoint does not say.
func TestWithheldByAnEarlierRun(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		from checkpoint.Scope
		want []string
	}{
		"no filters":         {from: checkpoint.Scope{ResourceVersion: 10}},
		"nothing hidden":     {from: checkpoint.Scope{ResourceVersion: 10, Filtered: true, Hides: &no}},
		"something hidden":   {checkpoint.Scope{ResourceVersion: 10, Filtered: true, Hides: &yes}, []string{"10-0"}},
		"an earlier release": {checkpoint.Scope{ResourceVersion: 10, Filtered: true}, []string{"10-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, nil, func(x *script) {
				x.s.Continue(&c.from)
				x.load(AtCheckpoint, 10, nil, at("a", "1", 5))
				x.settle()
				if diff := gocmp.Diff(c.want, spansOf(x.s.Report(time.Now()).Hidden)); diff != "" {
					x.t.Errorf("-want +got\n%s", diff)
				}
				// scope.started names the rules. After it, nothing else may be withheld.
				if p, _ := x.s.Position(); p.Filtered {
					x.t.Error("something may be withheld, and there are no filters")
				}
			})
		})
	}
}

// Another condition of whole objects needs a snapshot: consumers lack objects, or have too many.
// Other rules are announced.
func TestOtherFilters(t *testing.T) {
	for name, c := range map[string]struct {
		where, rules string
		want         []string
	}{
		"the same": {where: "w1", rules: "[1]"},
		"another condition": {where: "w2", rules: "[1]", want: []string{
			"snapshot.started 10 of 1", "r a@5", "snapshot.completed 10 of 1",
		}},
		"other rules": {where: "w1", rules: "[2]", want: []string{"scope.started 10 continued"}},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(o *Options) { o.Snapshots = true }, func(x *script) {
				x.s.SetFilter(withhold{}, "w1", []byte("[1]")) // before the first list, nothing follows
				x.observe(10, at("a", "1", 5))
				former := newScript(t, nil)
				former.s.SetFilter(withhold{}, c.where, []byte(c.rules))
				x.s.CopyFilter(former.s)
				x.watch() // the owner rests
				x.ends(c.want...)
				if x.s.Where() != c.where || !x.s.HasBegun() {
					x.t.Errorf("the condition is %s, and the scope has begun: %t", x.s.Where(), x.s.HasBegun())
				}
				if p, _ := x.s.Position(); p.Where != c.where || !p.Filtered {
					x.t.Errorf("the position is %+v", p)
				}
			})
		})
	}
}

// Changes wait for the announcement of other rules.
func TestChangesWaitForTheirRules(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		x.s.SetFilter(nil, "", []byte("[2]"))
		go x.s.Apply(x.ctx, []Event{event(watch.Modified, at("a", "1", 11))}, func() {})
		x.sends("scope.started 10 continued")
		if x.s.HasBegun() {
			x.t.Error("the new rules are not announced yet")
		}
		x.ends("u a@11 after 5 by me")
	})
}

// slow is a filter that takes 5 ms for each delta.
type slow struct{}

func (slow) Withholds(*object.Delta) string {
	sleep(5 * time.Millisecond)
	return ""
}

// Other goroutines get the lock while slow filters judge the reads of a snapshot: after 10 ms, but
// not before each delta.
func TestLockDuringSlowFilters(t *testing.T) {
	alone(t, func(x *script) {
		objects := make([]*object.Object, 0, 40)
		for n := range cap(objects) {
			objects = append(objects, at(string(rune('A'+n)), "1", 5))
		}
		x.s.SetFilter(slow{}, "", nil)
		x.load(Fresh, 10, []*Notice{x.s.NewSnapshot(10, true)}, objects...)
		x.s.gate.notices = nil
		n := 0
		for more := offeredSome; more == offeredSome; n++ {
			more, _ = x.s.offerPending(verdict{})
		}
		if sent := len(x.lane.lines()); sent != 40 || n != 14 {
			x.t.Errorf("%d deltas are sent, and the lock was taken %d times, want 40 in 14", sent, n)
		}
	})
}
