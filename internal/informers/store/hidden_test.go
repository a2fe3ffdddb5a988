package store

import (
	"fmt"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// hidingScript withholds a version of one object at some minutes and shows one at others.
type hidingScript struct {
	hiding

	now time.Time
}

func newHidingScript() *hidingScript {
	return &hidingScript{now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
}

func (h *hidingScript) span(from, until uint64) {
	h.objects++
	h.update(object.Point{ResourceVersion: from, Time: h.now}, h.now)
	h.now = h.now.Add(time.Second)
	h.objects--
	h.update(object.Point{ResourceVersion: until, Time: h.now}, h.now)
}

func spansOf(all []object.HiddenSpan) (out []string) {
	for _, s := range all {
		out = append(out, fmt.Sprintf("%d-%d", s.From.ResourceVersion, s.Until.ResourceVersion))
	}
	return out
}

// A span that ended long ago is reported until the bus has come up to its end. At the version that
// the bus has, something is hidden. A later span does not make the store forget it.
func TestSpanAboveThePositionIsKept(t *testing.T) {
	h := newHidingScript()
	h.span(10, 20)
	h.report(h.now.Add(time.Minute), 15)
	h.now = h.now.Add(20 * time.Minute)
	h.span(30, 40)
	since := h.now.Add(time.Minute)
	for rv, want := range map[uint64][]string{9: {"10-20", "30-40"}, 15: {"10-20", "30-40"}, 20: {"30-40"}, 39: {
		"30-40",
	}, 40: nil} {
		got, former := h.report(since, rv)
		if diff := gocmp.Diff(want, spansOf(got)); diff != "" {
			t.Errorf("at %d: -want +got\n%s", rv, diff)
		}
		if len(got)+len(former) != 2 {
			t.Errorf("at %d: %d spans and %d former ones, want 2 together", rv, len(got), len(former))
		}
	}
	for rv, want := range map[uint64]bool{9: false, 10: true, 19: true, 20: false, 35: true} {
		if got := h.covers(rv); got != want {
			t.Errorf("the position %d is hidden: %t, want %t", rv, got, want)
		}
	}
}

// A list makes versions pending in the order of keys. The span begins at the lowest one that is
// withheld.
func TestSpanBeginsAtTheLowestVersion(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.s.SetFilter(thirdVersions{}, "", nil)
		x.observe(10, at("a", "1", 4), at("b", "2", 5))
		x.relist(expired, 20, nil, at("a", "1", 15), at("b", "2", 12))
		x.ends("gap 10-20 expired")
		got, _ := x.s.hidden.report(time.Time{}, 20)
		if diff := gocmp.Diff([]string{"12-0"}, spansOf(got)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// Another snapshot replaces that of the checkpoint. The bus may have its end, and filters may have
// withheld its reads.
func TestReplacedSnapshotMayHaveHidden(t *testing.T) {
	scripted(t, func(o *Options) { o.Snapshots = true }, func(x *script) {
		from := &checkpoint.Scope{ResourceVersion: 14, Filtered: true, Hides: new(bool), Snapshot: &checkpoint.Snapshot{
			ID:              "20260101T000000.000Z-10",
			Announced:       true,
			ResourceVersion: 10,
			Objects:         1,
		}}
		x.s.SetFilter(thirdVersions{}, "", nil)
		x.s.Continue(from)
		x.s.RequireSnapshot()
		x.load(AtCheckpoint, 14, nil, at("a", "1", 5), at("b", "2", 9))
		got, _ := x.s.hidden.report(time.Time{}, 14)
		if diff := gocmp.Diff([]string{"14-0"}, spansOf(got)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		x.ends("scope.started 14 continued", "snapshot.started 14 of 2", "r a@5", "snapshot.completed 14 of 1")
		x.watch(event(watch.Modified, at("b", "2", 20)))
		x.ends("u b@20 after 9 by me")
		if got, _ := x.s.hidden.report(time.Time{}, 20); len(got) != 1 || got[0].Until.ResourceVersion != 20 {
			t.Errorf("the spans are %v", got)
		}
	})
}

// Spans within a minute are reported as one.
func TestNearbySpansAreOne(t *testing.T) {
	for pause, want := range map[time.Duration][]string{
		time.Minute:     {"10-40"},
		time.Minute + 1: {"10-20", "30-40"},
	} {
		h := newHidingScript()
		since := h.now
		h.span(10, 20)
		h.now = h.now.Add(pause)
		h.span(30, 40)
		got, _ := h.report(since, 40)
		if diff := gocmp.Diff(want, spansOf(got)); diff != "" {
			t.Errorf("after %s: -want +got\n%s", pause, diff)
		}
	}
}

// Many former spans are joined: none is lost, and they do not grow.
func TestFormerSpansAreBounded(t *testing.T) {
	h := newHidingScript()
	for n := range uint64(100) {
		h.span(10*n+1, 10*n+5)
		h.now = h.now.Add(2 * time.Minute)
		h.report(h.now.Add(-time.Minute), 0)
	}
	got, _ := h.report(h.now, 0)
	if len(got) > maxFormer+2 {
		t.Errorf("%d spans", len(got))
	}
	for n := range uint64(100) {
		if !h.covers(10*n + 3) {
			t.Errorf("the span from %d is lost", 10*n+1)
		}
	}
}

// After a restore of etcd, versions start over. A span does not reach from one history into the
// other: it has two parts.
func TestHiddenSpansOfARestoredEtcd(t *testing.T) {
	h := newHidingScript()
	h.span(300, 400)
	h.now = h.now.Add(10 * time.Minute)
	h.objects++
	h.update(object.Point{ResourceVersion: 500, Time: h.now}, h.now)
	h.now = h.now.Add(10 * time.Minute)
	h.rewind(object.Point{ResourceVersion: 600, Time: h.now})
	all, former := h.report(h.now, 50)
	if diff := gocmp.Diff([]string{"500-600", "1-0"}, spansOf(all)); diff != "" || len(former) > 0 {
		t.Errorf("-want +got\n%s%v", diff, former)
	}
	if !h.covers(50) {
		t.Error("the position in the new history is not hidden")
	}
	h.objects--
	h.now = h.now.Add(time.Second)
	h.update(object.Point{ResourceVersion: 80, Time: h.now}, h.now)
	h.now = h.now.Add(10 * time.Second)
	h.span(90, 95)
	if h.covers(550) || !h.covers(92) {
		t.Errorf("the spans are %+v", h.spans)
	}
	h.now = h.now.Add(20 * time.Minute)
	h.report(h.now, 100)
	h.span(200, 210)
	if len(h.spans) != 2 {
		t.Errorf("spans of the former history are kept: %+v", h.spans)
	}
}
