package store

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

func TestOtherForms(t *testing.T) {
	for name, c := range map[string]struct {
		known, shown *object.Object
		want         bool
	}{
		"the same":         {formed("a", "1", 5, 50), formed("a", "1", 5, 50), false},
		"another form":     {formed("a", "1", 5, 50), formed("a", "1", 5, 51), true},
		"another version":  {formed("a", "1", 5, 50), formed("a", "1", 6, 51), false},
		"another object":   {formed("a", "1", 5, 50), formed("a", "2", 5, 51), false},
		"an unknown form":  {formed("a", "1", 5, 50), formed("a", "1", 5, 0), false},
		"it was not known": {formed("a", "1", 5, 0), formed("a", "1", 5, 51), false},
		"no known object":  {formed("b", "1", 5, 50), formed("a", "1", 5, 51), false},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, nil, func(x *script) {
				x.observe(10, c.known)
				if got := x.s.HasInOtherForm(c.shown); got != c.want {
					x.t.Errorf("has it in another form: %t", got)
				}
				x.watch(event(watch.Modified, c.shown))
				if got := x.s.TakeOtherForm(); got != c.want || x.s.TakeOtherForm() {
					x.t.Errorf("the watch has shown another form: %t, or it was noted twice", got)
				}
			})
		})
	}
}

// A list after lost history, and a list that shows a missed object again, note other forms. They
// change nothing that was sent.
func TestListsNoteOtherForms(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, formed("a", "1", 5, 50), formed("b", "2", 6, 60))
		x.lane.fill(false, true)
		x.relist(expired, 20, nil, formed("a", "1", 5, 51))
		if !x.s.TakeOtherForm() {
			x.t.Error("the form of a list is not noted")
		}
		x.ends("gap 10-20 expired")
		x.s.BeginList(Relist)
		x.s.Compare(formed("b", "2", 6, 61), new(object.Scanned))
		if !x.s.TakeOtherForm() {
			x.t.Error("the form of an object that was missed is not noted")
		}
		x.s.Compare(formed("a", "1", 5, 50), new(object.Scanned))
		if x.s.TakeOtherForm() {
			x.t.Error("the form is the one that was sent")
		}
	})
}

// New forms of known versions are announced by a gap, and a snapshot has them. Until the gap, a
// checkpoint has the former ones.
func TestReform(t *testing.T) {
	scripted(t, func(o *Options) { o.Snapshots = true }, func(x *script) {
		was := formed("a", "1", 5, 50)
		if x.s.TakesForms() || x.s.Reform(nil, Loss{}) {
			x.t.Error("forms are taken before the first list")
		}
		x.observe(10, was, formed("b", "2", 6, 60))
		x.settle()
		x.lane.lines()
		before, _ := x.s.Position()
		now := formed("a", "1", 5, 51)
		l := Loss{From: 7, Since: time.Now()}
		if !x.s.TakesForms() || !x.s.Reform([]*object.Object{was, formed("b", "2", 7, 61), formed("c", "3", 1, 1)}, l) {
			x.t.Error("no forms are taken after it")
		}
		x.ends() // none of these has another form
		x.s.AwaitReplay(11)
		if !x.s.Reform([]*object.Object{now}, l) || x.s.TakesForms() || x.s.Reform([]*object.Object{was}, l) {
			x.t.Error("forms are not taken, or taken while others are announced")
		}
		x.sends("gap 7-10 content-changed")
		if p, _ := x.s.Position(); p.Forms != before.Forms || p.State != before.State {
			x.t.Errorf("before the gap, the position has the forms %x, want %x", p.Forms, before.Forms)
		}
		x.settle()
		p, _ := x.s.Position()
		if p.Forms == before.Forms || p.Forms != x.s.known.state.Forms || p.State != before.State {
			x.t.Errorf("after the gap, the position has the forms %x", p.Forms)
		}
		if !x.s.View().Sweeping {
			x.t.Error("no snapshot is to follow")
		}
		x.watch(bookmark(11))
		x.ends("snapshot.started 11 of 2", "r a@5", "r b@6", "snapshot.completed 11 of 2")
		x.s.MarkGone()
		if x.s.TakesForms() {
			x.t.Error("a removed resource has no forms")
		}
	})
}

// Live deltas wait for the gap of new forms.
func TestChangesWaitForTheGapOfForms(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, formed("a", "1", 5, 50))
		x.s.Reform([]*object.Object{formed("a", "1", 5, 51)}, Loss{From: 99})
		go x.s.Apply(x.ctx, []Event{event(watch.Modified, at("a", "1", 11))}, func() {})
		x.sends("gap 10-10 content-changed") // not from 99: it is later
		x.ends("u a@11 after 5 by me")
		if x.s.View().Sweeping {
			x.t.Error("a snapshot is to follow, and none is ever sent")
		}
	})
}

// A restart finds other forms than its checkpoint has.
func TestRestartWithOtherForms(t *testing.T) {
	alone(t, func(x *script) {
		former := fingerprintOf(formed("a", "1", 5, 50))
		x.s.Continue(&checkpoint.Scope{ResourceVersion: 10, State: former.Versions, Forms: former.Forms})
		n := x.s.FormsChanged(former.Forms, Loss{From: 10}, 30)
		x.load(AtCheckpoint, 10, []*Notice{n}, formed("a", "1", 5, 51))
		if p, ok := x.s.Position(); !ok || p.Forms != former.Forms || p.State != former.Versions {
			x.t.Errorf("before the gap, the position is %+v, want the forms %x", p, former.Forms)
		}
		if r := reformOf(x.s.gate.notices); r != n.reform {
			x.t.Error("the notice is not found")
		}
		go x.s.Run(x.ctx, 0)
		x.ends("gap 10-30 content-changed", "scope.started 10 continued")
		synctest.Wait()
		if p, _ := x.s.Position(); p.Forms != fingerprintOf(formed("a", "1", 5, 51)).Forms {
			x.t.Errorf("after the gap, the position has the forms %x", p.Forms)
		}
	})
}
