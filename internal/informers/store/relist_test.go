package store

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

var expired = Loss{From: 10, Reason: object.Expired}

// TestRelistShowsWhatHistoryItIsOf compares an object with the store of a list at 10 that has the
// object a with the uid 1 at 5.
func TestRelistShowsWhatHistoryItIsOf(t *testing.T) {
	for name, c := range map[string]struct {
		listed                      []*object.Object
		unchanged, older, backwards bool
	}{
		"the same":                      {listed: []*object.Object{at("a", "1", 5)}, unchanged: true},
		"a later version":               {listed: []*object.Object{at("a", "1", 11)}},
		"missed":                        {},
		"a version that was missed":     {listed: []*object.Object{at("a", "1", 10)}, backwards: true},
		"an earlier version":            {listed: []*object.Object{at("a", "1", 4)}, older: true, backwards: true},
		"an object that was missed":     {listed: []*object.Object{at("a", "1", 5), at("b", "2", 9)}, backwards: true},
		"another object, and missed":    {listed: []*object.Object{at("a", "2", 4)}, backwards: true},
		"another object of a late time": {listed: []*object.Object{at("a", "2", 12)}},
		"a new object":                  {listed: []*object.Object{at("a", "1", 5), at("b", "2", 12)}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newScript(t, nil)
			x.load(Fresh, 10, nil, at("a", "1", 5))
			if v := x.s.View(); !v.Loaded || v.Unchanged {
				t.Errorf("after the first list: %+v", v)
			}
			x.s.BeginList(Relist)
			for _, o := range c.listed {
				x.s.Compare(o, new(object.Scanned))
			}
			v := x.s.View()
			if !v.Loaded || v.Unchanged != c.unchanged || v.Older != c.older || v.WentBack != c.backwards {
				t.Errorf("unchanged %t, older %t, went back %t", v.Unchanged, v.Older, v.WentBack)
			}
			x.s.BeginList(Relist) // it has failed half-way
			if v := x.s.View(); v.Older || v.WentBack || v.Unchanged {
				t.Errorf("after it began again: %+v", v)
			}
		})
	}
}

// TestRelist lists objects at 20, after a list at 10 that had the object a with the uid 1 at 5. The
// position stays before the gap until the bus has everything.
func TestRelist(t *testing.T) {
	selects := func(exists map[uint64]bool) func(*Options) {
		return func(o *Options) { o.Selector = &answers{exists: exists} }
	}
	same := at("a", "1", 5)
	for name, c := range map[string]struct {
		options func(*Options)
		listed  []*object.Object
		want    []string // after the gap
	}{
		"nothing changed": {listed: []*object.Object{same}},
		"changed":         {listed: []*object.Object{at("a", "1", 12)}, want: []string{"u a@12 after 5 inferred"}},
		"created":         {listed: []*object.Object{same, at("b", "2", 12)}, want: []string{"c b@12 inferred"}},
		"deleted":         {want: []string{"d a@20 after 5 inferred"}},
		"replaced": {
			listed: []*object.Object{at("a", "2", 12)}, want: []string{"d a@12 after 5 inferred", "c a@12 inferred"},
		},
		"no longer selected": {options: selects(map[uint64]bool{20: true}), want: []string{"l a@20 after 5 inferred"}},
		"deleted under a selector": {
			options: selects(map[uint64]bool{20: false, 0: true}), want: []string{"d a@20 after 5 inferred"},
		},
		"missed, and exists now": {
			options: selects(map[uint64]bool{0: true}), want: []string{"l a@20 after 5 inferred"},
		},
		"missed, and does not exist now": {
			options: selects(map[uint64]bool{0: false}), want: []string{"d a@20 after 5 inferred"},
		},
		"missed, and nobody knows why": {options: selects(nil), want: []string{"l a@20 after 5 inferred"}},
		"selected now": {
			options: selects(nil), listed: []*object.Object{same, at("b", "2", 12)}, want: []string{"e b@12 inferred"},
		},
		"replaced under a selector": {
			options: selects(nil), listed: []*object.Object{at("a", "2", 12)},
			want: []string{"d a@12 after 5 inferred", "e a@12 inferred"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, c.options, func(x *script) {
				x.observe(10, same)
				x.relist(expired, 20, nil, c.listed...)
				x.sends("gap 10-20 expired")
				x.position(10)
				x.lane.acknowledge(1)
				x.sends(c.want...)
				if v := x.s.View(); len(c.want) > 0 && (v.InFlight == 0 || v.Resting || v.Acknowledged != 10) {
					x.t.Errorf("before the acknowledgements: %+v", v)
				}
				x.ends()
				x.position(20)
				if v := x.s.View(); v.Objects != len(c.listed) || v.Pending > 0 || v.Loss != nil || !v.Resting {
					x.t.Errorf("in the end: %+v", v)
				}
				if at, settled := x.s.Settled(); !settled || at.IsZero() != (len(c.want) == 0) {
					x.t.Errorf("all is sent that lists have shown: %t, at %s", settled, at)
				}
			})
		})
	}
}

// A pending delta has not been sent while live deltas leave no room. The next list sends what it
// adds, and a watch event sends both before its own delta.
func TestLiveDeltaFollowsPendingOnes(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5), at("b", "2", 6))
		x.lane.fill(false, true)
		x.relist(expired, 20, nil, at("a", "1", 12), at("b", "2", 6))
		x.ends("gap 10-20 expired")
		if _, settled := x.s.Settled(); settled {
			x.t.Error("settled, and a delta is pending")
		}
		x.relist(Loss{From: 20, Reason: object.Compacted}, 30, nil, at("a", "1", 25), at("b", "2", 6))
		x.ends("gap 20-30 compacted")
		x.position(10)
		if v := x.s.View(); v.Pending != 1 {
			x.t.Errorf("%d keys are pending, want 1", v.Pending)
		}
		x.watch(event(watch.Modified, at("a", "1", 31)))
		x.sends("u a@12 after 5 inferred", "u a@25 after 12 inferred", "u a@31 after 25 by me")
		if v := x.s.View(); v.Pending != 0 || v.InFlight != 3 {
			x.t.Errorf("the view is %+v", v)
		}
		x.ends()
		x.lane.fill(false, false) // the cursor finds that nothing is left
		x.ends()
		x.position(31)
	})
}

// After the last run, the position passes a gap without the cursor.
func TestSettle(t *testing.T) {
	alone(t, func(x *script) {
		ctx, cancel := context.WithCancel(x.ctx)
		go x.s.Run(ctx, 0)
		x.observe(10, at("a", "1", 5))
		x.lane.fill(false, true)
		x.relist(expired, 20, nil, at("a", "1", 12))
		x.ends("gap 10-20 expired")
		cancel()
		synctest.Wait()
		x.s.Settle()
		x.watch(event(watch.Modified, at("a", "1", 21)))
		x.ends("u a@12 after 5 inferred", "u a@21 after 12 by me")
		x.position(10)
		x.s.Settle()
		x.position(21)
	})
}

// An object that a list under selectors has missed, and that a watch shows again, had left the
// scope. Another object of that name says that the former one was deleted.
func TestMissedObjectReturns(t *testing.T) {
	for uid, want := range map[string][]string{
		"1": {"l a@20 after 5 inferred", "e a@31 after 18"},
		"2": {"d a@20 after 5 inferred", "e a@31 after 18"},
	} {
		scripted(t, func(o *Options) {
			o.Pushed, o.Selector = true, &answers{was: at("a", uid, 18), exists: map[uint64]bool{31: true, 20: true}}
		}, func(x *script) {
			x.observe(10, at("a", "1", 5))
			x.lane.fill(false, true)
			x.relist(expired, 20, nil)
			x.ends("gap 10-20 expired")
			if v := x.s.View(); v.Objects != 1 || v.Bytes != 0 {
				x.t.Errorf("a deletion is pending: %+v", v)
			}
			x.watch(event(watch.Added, at("a", uid, 31)))
			x.ends(want...)
		})
	}
}

// A list that begins while deltas are pending shows an object again that the one before has missed.
func TestMissedObjectIsListedAgain(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		x.lane.fill(false, true)
		x.relist(expired, 20, nil)
		x.ends("gap 10-20 expired")
		x.relist(Loss{From: 20, Reason: object.Expired}, 30, nil, at("a", "1", 5))
		x.ends("gap 20-30 expired")
		x.lane.fill(false, false)
		x.ends("d a@20 after 5 inferred", "c a@5 inferred")
		x.position(30)
	})
}

// A gap that is not announced yet is replaced by that of the next list: both losses are one.
func TestGapOfTheNextListReplacesIt(t *testing.T) {
	since := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		x.lane.fill(true, true)
		x.relist(Loss{From: 10, Since: since, Reason: object.Expired}, 20, nil, at("a", "1", 12))
		synctest.Wait()
		x.relist(Loss{From: 20, Since: time.Now(), Reason: object.Compacted}, 30, nil, at("a", "1", 25))
		x.lane.fill(false, false)
		synctest.Wait()
		if loss := x.s.View().Loss; loss == nil || loss.From != 10 || !loss.Since.Equal(since) {
			x.t.Errorf("the loss is %+v", loss)
		}
		// The first was waiting for room already.
		x.ends("gap 10-20 expired", "gap 10-30 compacted", "u a@25 after 5 inferred")
		x.position(30)
		for _, reason := range []string{"expired", "compacted"} {
			if n := testutil.ToFloat64(x.s.o.Metrics.Gaps.WithLabelValues(reason, "false")); n != 1 {
				x.t.Errorf("%g gaps are counted as %s, want 1", n, reason)
			}
		}
	})
}

// One gap can cover two losses. If nobody can recover one of them, its reason counts.
func TestLossesThatAreOneGap(t *testing.T) {
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	for name, c := range map[string]struct{ first, second, want Loss }{
		"recoverable": {
			Loss{From: 10, Since: early, Reason: object.Expired, SkipIfRecovered: true},
			Loss{From: 20, Since: late, Reason: object.Compacted, SkipIfRecovered: true},
			Loss{From: 10, Since: early, Reason: object.Compacted, SkipIfRecovered: true},
		},
		"the first is not": {
			Loss{From: 10, Since: early, Reason: object.SelectionChanged, Unrecoverable: true},
			Loss{From: 20, Since: late, Reason: object.Expired, SkipIfRecovered: true},
			Loss{From: 10, Since: early, Reason: object.SelectionChanged, Unrecoverable: true},
		},
		"the second is not": {
			Loss{From: 10, Since: early, Reason: object.Expired, SkipIfRecovered: true},
			Loss{From: 20, Since: late, Reason: object.Compacted, Unrecoverable: true},
			Loss{From: 10, Since: early, Reason: object.Compacted, Unrecoverable: true},
		},
		"etcd was restored since": {
			Loss{From: 10, Since: early, Reason: object.SelectionChanged, Unrecoverable: true},
			Loss{From: 20, Since: late, Reason: object.Rewound, Unrecoverable: true},
			Loss{From: 10, Since: early, Reason: object.Rewound, Unrecoverable: true},
		},
	} {
		x := newScript(t, nil)
		x.s.Lose(c.first)
		x.s.Lose(c.second)
		if diff := gocmp.Diff(&c.want, x.s.View().Loss); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// TestRecoveredGap has a walk find versions of the object a with the uid 1 between 5 and 15.
func TestRecoveredGap(t *testing.T) {
	outsideAt := func(rv uint64) backfill.Version {
		return backfill.Version{ResourceVersion: rv, Object: at("a", "1", rv), Outside: true}
	}
	for name, c := range map[string]struct {
		found            backfill.Result
		loss             Loss
		whole, recovered bool
		want             []string
	}{
		"all versions": {
			found: backfill.Result{Versions: versionsOf("a", "11 1, 13 1"), Complete: true, ChangedBy: []byte("me")},
			loss:  expired, recovered: true,
			want: []string{"gap 10-20 expired recovered", "u a@11 after 5", "u a@13 after 11", "u a@15 after 13 by me"},
		},
		"no version in between": {
			found: backfill.Result{Complete: true}, loss: expired, recovered: true,
			want: []string{"gap 10-20 expired recovered", "u a@15 after 5"},
		},
		"some versions": {
			found: backfill.Result{Versions: versionsOf("a", "11 1, 13 1")}, loss: expired,
			want: []string{"gap 10-20 expired", "u a@11 after 5 inferred", "u a@13 after 11", "u a@15 after 13"},
		},
		"no versions": {loss: expired, want: []string{"gap 10-20 expired", "u a@15 after 5 inferred"}},
		"all, and nothing else was lost": {
			found: backfill.Result{Versions: versionsOf("a", "11 1"), Complete: true}, whole: true, recovered: true,
			loss: Loss{From: 10, Reason: object.Expired, SkipIfRecovered: true},
			want: []string{"u a@11 after 5", "u a@15 after 11"},
		},
		"all, but the gap must be announced": {
			found: backfill.Result{Versions: versionsOf("a", "11 1"), Complete: true}, whole: true, recovered: true,
			loss: expired, want: []string{"gap 10-20 expired recovered", "u a@11 after 5", "u a@15 after 11"},
		},
		"all of a gap that has more": {
			found: backfill.Result{Versions: versionsOf("a", "11 1"), Complete: true}, whole: true, recovered: true,
			loss: Loss{From: 10, Reason: object.Expired, SkipIfRecovered: true, Unrecoverable: true},
			want: []string{"gap 10-20 expired", "u a@11 after 5", "u a@15 after 11"},
		},
		"it had left the scope and has returned": {
			found: backfill.Result{Versions: []backfill.Version{outsideAt(11), outsideAt(13)}, Complete: true},
			loss:  expired, recovered: true,
			want: []string{"gap 10-20 expired recovered", "l a@11 after 5", "e a@15 after 13"},
		},
		"it was deleted and created again": {
			found: backfill.Result{Versions: versionsOf("a", "11 gone, 12 2, 13 gone"), Complete: true},
			loss:  expired, recovered: true,
			want: []string{"gap 10-20 expired recovered", "d a@11 after 5", "c a@12", "d a@13 after 12", "c a@15"},
		},
		"one replaced another": {
			found: backfill.Result{Versions: versionsOf("a", "11 2"), Complete: true}, loss: expired, recovered: true,
			want: []string{
				"gap 10-20 expired recovered", "d a@11 after 5", "c a@11", "d a@15 after 11", "c a@15",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, nil, func(x *script) {
				x.observe(10, at("a", "1", 5))
				x.relist(c.loss, 20, func(_ context.Context, to uint64) (whole, recovered bool, err error) {
					loss, changed := x.s.Changes()
					if len(changed) != 1 || changed[0].Before.ResourceVersion != 5 || changed[0].Managers == nil ||
						loss.From != 10 || to != 20 {
						x.t.Errorf("a walk up to %d of %+v, for %+v", to, changed, loss)
					}
					n := x.s.AddVersions(map[string]backfill.Result{
						"configmaps/shop/a": c.found,
						"configmaps/shop/b": {Versions: versionsOf("b", "11 7")}, // no list has shown that it changed
					})
					if n != len(c.found.Versions) {
						x.t.Errorf("%d versions are added, want %d", n, len(c.found.Versions))
					}
					return c.whole, c.recovered, nil
				}, at("a", "1", 15))
				x.ends(c.want...)
				x.position(20)
				if v := x.s.View(); v.Loss != nil || v.Pending > 0 {
					x.t.Errorf("in the end: %+v", v)
				}
			})
		})
	}
}

// Versions that are found after the gap was announced are too late. Those found again replace the
// ones found before.
func TestVersionsOfAnnouncedGapsStay(t *testing.T) {
	scripted(t, nil, func(x *script) {
		find := func(rvs string) finder {
			return func(context.Context, uint64) (whole, recovered bool, err error) {
				for range 2 {
					x.s.AddVersions(map[string]backfill.Result{
						"configmaps/shop/a": {Versions: versionsOf("a", rvs), Complete: true},
					})
				}
				return false, true, nil
			}
		}
		x.observe(10, at("a", "1", 5))
		x.lane.fill(false, true)
		x.relist(expired, 20, find("11 1"), at("a", "1", 15))
		x.ends("gap 10-20 expired recovered")
		if n := x.s.AddVersions(map[string]backfill.Result{"configmaps/shop/a": {Complete: true}}); n != 0 {
			x.t.Errorf("%d versions are added to an announced gap", n)
		}
		x.relist(Loss{From: 20, Reason: object.Expired}, 30, find("22 1, 23 1"), at("a", "1", 25))
		x.ends("gap 20-30 expired recovered")
		x.lane.fill(false, false)
		x.ends("u a@11 after 5", "u a@15 after 11", "u a@22 after 15", "u a@23 after 22", "u a@25 after 23")
		x.position(30)
	})
}

// If too many versions are pending, those of an announced gap are reduced to the last one. The next
// gap then covers the earlier one, and says that not all is recovered.
func TestTooManyPendingVersions(t *testing.T) {
	for name, c := range map[string]struct {
		most int
		want []string
	}{
		"few": {10, []string{
			"gap 20-30 expired recovered", "u a@11 after 5", "u a@12 after 11", "u a@15 after 12", "u a@22 after 15",
			"u a@25 after 22",
		}},
		"as many as allowed": {3, []string{
			"gap 20-30 expired recovered", "u a@11 after 5", "u a@12 after 11", "u a@15 after 12", "u a@22 after 15",
			"u a@25 after 22",
		}},
		"too many": {2, []string{
			"gap 10-30 expired", "u a@15 after 5 inferred", "u a@22 after 15", "u a@25 after 22",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(o *Options) { o.MaxVersions = c.most }, func(x *script) {
				find := func(rvs string) finder {
					return func(context.Context, uint64) (whole, recovered bool, err error) {
						x.s.AddVersions(map[string]backfill.Result{
							"configmaps/shop/a": {Versions: versionsOf("a", rvs), Complete: true},
						})
						return false, true, nil
					}
				}
				x.observe(10, at("a", "1", 5))
				x.lane.fill(false, true)
				x.relist(expired, 20, find("11 1, 12 1"), at("a", "1", 15))
				x.ends("gap 10-20 expired recovered")
				x.relist(Loss{From: 20, Reason: object.Expired}, 30, find("22 1"), at("a", "1", 25))
				x.ends(c.want[0])
				x.lane.fill(false, false)
				x.ends(c.want[1:]...)
				x.position(30)
			})
		})
	}
}

// The manager reads the state of a list that failed half-way. The next list compares all objects.
func TestMissAndRemoveDuringStreamedLists(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5), at("b", "2", 6))
		x.s.BeginList(Relist)
		x.s.Compare(at("a", "1", 5), nil)
		x.s.Compare(at("b", "2", 6), nil)
		x.s.Miss(at("b", "2", 19), nil)
		x.s.Miss(at("c", "3", 19), nil) // created and deleted inside the gap
		if x.s.View().Unchanged {
			x.t.Error("unchanged, and b was deleted")
		}
		x.s.Lose(expired)
		x.s.EndList(20, x.s.Gap(20, nil))
		x.ends("gap 10-20 expired", "d b@20 after 6 inferred")
	})
}

// After a restore of etcd, objects have versions of another history. The position says so before
// the gap: another run must not continue on the former history.
func TestRestoredEtcd(t *testing.T) {
	scripted(t, func(o *Options) { o.Snapshots = true }, func(x *script) {
		x.observe(100, at("a", "1", 50))
		x.lane.fill(true, true)
		x.s.Restart(Loss{From: 100, Reason: object.Rewound})
		p, ok := x.s.Position()
		if !ok || !p.Rewound || p.History != 1 || p.ResourceVersion != 100 {
			x.t.Errorf("the position is %+v (%t)", p, ok)
		}
		if v := x.s.View(); v.Loaded || v.CaughtUp || v.Adopted || v.Objects > 0 || v.History != 1 {
			x.t.Errorf("the view is %+v", v)
		}
		saves := x.saves.Load()
		gap := x.s.Gap(60, nil)
		gap.Sweeps = true
		x.s.Load(at("a", "1", 40), nil)
		x.s.EndList(60, gap)
		synctest.Wait()
		if x.saves.Load() != saves+1 {
			x.t.Errorf("the position was saved %d times before the gap, want once", x.saves.Load()-saves)
		}
		x.lane.fill(false, false)
		x.ends("gap 100-60 rewound history 1", "snapshot.started 60 of 1 history 1", "r a@40 history 1",
			"snapshot.completed 60 of 1 history 1")
		if p, ok := x.s.Position(); !ok || p.Rewound || p.History != 1 || p.ResourceVersion != 60 {
			x.t.Errorf("in the end, the position is %+v (%t)", p, ok)
		}
		x.watch(event(watch.Modified, at("a", "1", 61)))
		x.ends("u a@61 after 40 history 1 by me")
	})
}

// History that the API server no longer has begins again at the same one.
func TestRestartAfterCompaction(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(100, at("a", "1", 50))
		x.s.Restart(Loss{From: 100, Reason: object.Compacted})
		if p, ok := x.s.Position(); !ok || p.Rewound || p.History != 0 || p.ResourceVersion != 100 {
			x.t.Errorf("the position is %+v (%t)", p, ok)
		}
		saves := x.saves.Load()
		x.s.Load(at("a", "1", 140), nil)
		x.s.EndList(160, x.s.Gap(160, nil))
		x.sends("gap 100-160 compacted")
		if x.saves.Load() != saves {
			x.t.Error("the position is saved before the gap")
		}
		x.ends() // the run observes the scope as before
		x.position(160)
	})
}

// A change is in flight when history is given up. Nothing sends it again after a crash, so the gap
// begins before it. That also holds after a list whose gap is not announced yet.
func TestGapBeginsBeforeWhatIsInFlight(t *testing.T) {
	for _, relists := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a list: %t", relists), func(t *testing.T) {
			scripted(t, nil, func(x *script) {
				x.observe(100, at("a", "1", 50))
				first := time.Now()
				x.watch(event(watch.Modified, at("a", "1", 101)))
				sleep(time.Minute)
				x.sends("u a@101 after 50 by me")
				if relists {
					x.s.BeginList(Relist)
					x.s.Lose(Loss{From: 101, Since: time.Now(), Reason: object.Expired})
					x.s.EndList(120)
				}
				x.s.Restart(Loss{From: x.s.View().Reached, Since: time.Now(), Reason: object.Compacted})
				x.s.Load(at("a", "1", 140), nil)
				x.s.EndList(160, x.s.Gap(160, nil))
				x.sends("gap 100-160 compacted")
				if since := x.sinceOf(); !since.Equal(first) {
					x.t.Errorf("the gap is since %s, and the bus lacks a change of %s", since, first)
				}
				x.ends()
				x.position(160)
			})
		})
	}
}

// The start of a snapshot waits for the acknowledgement of a change when history is given up. The
// position stays where it was until the bus has the gap. The snapshot may see the new position, and
// take that for the acknowledgement.
func TestRestartDuringTheStartOfASnapshot(t *testing.T) {
	for range 50 { // mostly, the snapshot sees first that it is replaced
		scripted(t, nil, func(x *script) {
			x.observe(100, at("a", "1", 50))
			x.saved = func() error { // the change comes after the request
				x.saved = nil
				x.watch(event(watch.Modified, at("a", "1", 101)))
				return nil
			}
			x.request("")
			x.sends("u a@101 after 50 by me")
			x.s.AwaitReplay(0) // it wakes the snapshot, which sees the state after the list
			x.s.Restart(Loss{From: 101, Reason: object.Compacted})
			x.s.Load(at("a", "1", 140), nil)
			x.s.EndList(160, x.s.Gap(160, nil))
			x.sends("gap 100-160 compacted")
			x.position(100)
			x.ends()
			x.position(160)
		})
	}
}
