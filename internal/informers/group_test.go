package informers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

var began = time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)

func seconds(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }

// resourceNamed returns a resource with a name of a usual length.
func resourceNamed(n int) *object.Resource {
	return &object.Resource{
		Group:      "kafka.strimzi.io",
		Version:    "v1",
		Name:       fmt.Sprintf("resources%03d", n),
		Kind:       "Resource",
		Namespaced: true,
	}
}

func scopeOf(r *object.Resource, n int) string { return fmt.Sprintf("%s/namespace-%04d", r, n) }

// atRest returns the report of a scope that is like all others.
func atRest(r *object.Resource, n int) scopeReport {
	return scopeReport{started: true, ScopeReport: object.ScopeReport{
		Resource:        r,
		Scope:           scopeOf(r, n),
		ResourceVersion: 1_234_567_890 + uint64(n),
		To:              seconds(600 + n%60),
		SnapshotBegan:   seconds(n % 10),
	}}
}

func cut(from, until int) object.Interruption {
	return object.Interruption{From: seconds(from), Until: seconds(until), Why: object.InterruptedCut}
}

func TestGroup(t *testing.T) {
	t.Parallel()
	r := resourceNamed(1)
	reports := func(n int, change func(k int, s *scopeReport)) (all []scopeReport) {
		for k := range n {
			s := atRest(r, k)
			change(k, &s)
			all = append(all, s)
		}
		return all
	}
	for name, c := range map[string]struct {
		all  []scopeReport
		want []string
	}{
		"all alike": {
			reports(30, func(int, *scopeReport) {}),
			[]string{"30 to 600 up to 1234567890"},
		},
		"one has not begun": {
			reports(30, func(k int, s *scopeReport) { s.started = k != 7 }),
			[]string{scopeOf(r, 7) + " to 607 up to 1234567897", "29 to 600 up to 1234567890"},
		},
		"one has no snapshot": {
			reports(30, func(k int, s *scopeReport) {
				if k == 7 {
					s.ResourceVersion = 0
				}
			}),
			[]string{scopeOf(r, 7) + " to 607 up to 0", "29 to 600 up to 1234567890"},
		},
		"one is far behind": {
			reports(30, func(k int, s *scopeReport) {
				if k == 7 {
					s.To = seconds(400)
				}
			}),
			[]string{scopeOf(r, 7) + " to 400 up to 1234567897", "29 to 600 up to 1234567890"},
		},
		"one has another history": {
			reports(30, func(k int, s *scopeReport) {
				if k == 7 {
					s.History = 1
				}
			}),
			[]string{scopeOf(r, 7) + " to 607 up to 1234567897 h1", "29 to 600 up to 1234567890"},
		},
		"one was interrupted": {
			reports(30, func(k int, s *scopeReport) {
				if k == 7 {
					s.Interruptions = []object.Interruption{cut(500, 540)}
				}
			}),
			[]string{scopeOf(r, 7) + " to 607 up to 1234567897 cut 500-540", "29 to 600 up to 1234567890"},
		},
		"most were interrupted at about the same time": {
			reports(30, func(k int, s *scopeReport) {
				if k != 7 {
					s.Interruptions = []object.Interruption{cut(500+k, 540+k)}
				}
			}),
			[]string{scopeOf(r, 7) + " to 607 up to 1234567897", "29 to 600 up to 1234567890 cut 500-569"},
		},
		"many differ": {
			reports(30, func(k int, s *scopeReport) {
				s.History = uint32(k % 2)
				if k%3 == 0 {
					s.Interruptions = []object.Interruption{cut(10*k, 10*k+1)}
				}
			}),
			[]string{
				"30 to 600 up to 1234567890 cut 0-1 cut 30-31 cut 60-61 cut 90-91 cut 120-121 cut 150-151 cut 180-181 cut 210-211 cut 240-241 cut 270-271",
			},
		},
		"a hidden span that was not over at the version of another scope": {
			reports(3, func(k int, s *scopeReport) {
				if k == 2 {
					s.FormerHidden = []object.HiddenSpan{
						{From: object.Point{ResourceVersion: 3, Time: seconds(1)}, Until: object.Point{
							ResourceVersion: 1_234_567_890,
							Time:            seconds(2),
						}},
						{From: object.Point{ResourceVersion: 5, Time: seconds(7)}, Until: object.Point{
							ResourceVersion: 1_234_567_891,
							Time:            seconds(9),
						}},
					}
				}
			}),
			[]string{"3 to 600 up to 1234567890 hidden 5@7-1234567891"},
		},
		"a hidden span of another history": {
			reports(30, func(k int, s *scopeReport) {
				s.History = uint32(k % 2)
				if k%3 == 0 {
					s.Interruptions = []object.Interruption{cut(0, k/3)}
				}
				s.FormerHidden = []object.HiddenSpan{
					{From: object.Point{ResourceVersion: 3, Time: seconds(1)}, Until: object.Point{
						ResourceVersion: 1_300_000_000 + uint64(k%2),
						Time:            seconds(2),
					}},
				}
			}),
			[]string{"30 to 600 up to 1234567890 cut 0-9 hidden 3@1-1300000000"},
		},
		"hidden spans": {
			reports(2, func(k int, s *scopeReport) {
				s.Hidden = []object.HiddenSpan{{From: object.Point{
					ResourceVersion: uint64(5 - k),
					Time:            seconds(10 + k),
				}}}
				if k == 0 {
					s.Hidden[0].Until = object.Point{ResourceVersion: 9, Time: seconds(20)}
				}
			}),
			[]string{"2 to 600 up to 1234567890 hidden 4@10-0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, e := range group(c.all) {
				for _, s := range e.joined {
					got = append(got, described(&s))
				}
			}
			if d := gocmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// described returns an entry as text. Times are seconds after began.
func described(s *object.ScopeReport) string {
	after := func(at time.Time) int { return int(at.Sub(began) / time.Second) }
	text := s.Scope
	if text == "" {
		text = fmt.Sprint(s.Count)
	}
	text += fmt.Sprintf(" to %d up to %d", after(s.To), s.ResourceVersion)
	if s.History > 0 {
		text += fmt.Sprintf(" h%d", s.History)
	}
	for _, i := range s.Interruptions {
		text += fmt.Sprintf(" %s %d-%d", i.Why, after(i.From), after(i.Until))
	}
	for _, h := range s.Hidden {
		text += fmt.Sprintf(" hidden %d@%d-%d", h.From.ResourceVersion, after(h.From.Time), h.Until.ResourceVersion)
	}
	return text
}

// TestJoinedEntriesClaimNoMore draws reports of scopes: what an event says of a scope is not more
// than the scope itself has reported, however the event is packed.
func TestJoinedEntriesClaimNoMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []scopeReport
		for n := range rapid.IntRange(1, 3).Draw(t, "resources") {
			r := resourceNamed(n)
			for k := range rapid.IntRange(1, 20).Draw(t, "scopes") {
				all = append(all, drawReport(t, r, k))
			}
		}
		limit := rapid.SampledFrom([]int{1000, 4000, 100_000}).Draw(t, "limit")
		for _, scopes := range pack(group(all), limit) {
			report := &object.Report{Scopes: slices.Clone(scopes)}
			share(report, nil)
			for _, s := range all {
				if e := entryOf(report, &s); e != nil {
					claimsNoMore(t, report, e, &s.ScopeReport)
				}
			}
		}
	})
}

// TestSharedEtcds draws the etcds of resources. An event that is packed has the same ones.
func TestSharedEtcds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &object.Report{}
		want := map[string]string{}
		for n := range rapid.IntRange(0, 6).Draw(t, "resources") {
			resource := resourceNamed(n)
			etcd := rapid.SampledFrom([]string{"", "1", "1", "2", object.UnknownEtcd}).Draw(t, "etcd")
			want[resource.String()] = etcd
			for k := range rapid.IntRange(1, 3).Draw(t, "entries") {
				s := object.ScopeReport{Resource: resource, Scope: scopeOf(resource, k)}
				if k == 0 {
					s.Etcd = etcd
				}
				r.Scopes = append(r.Scopes, s)
			}
		}
		shareEtcds(r)
		got := map[string]string{}
		for _, s := range r.Scopes {
			name := s.Resource.String()
			got[name] = cmp.Or(got[name], s.Etcd, r.Etcd)
			if etcd := cmp.Or(s.Etcd, r.Etcd); etcd != "" && etcd != want[name] {
				t.Fatalf("%s is in %q, want %q", s.Scope, etcd, want[name])
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	})
}

func drawReport(t *rapid.T, r *object.Resource, k int) scopeReport {
	s := atRest(r, k)
	s.started = rapid.IntRange(0, 9).Draw(t, "started") > 0
	s.History = uint32(rapid.IntRange(0, 5).Draw(t, "history") / 5)
	if rapid.IntRange(0, 9).Draw(t, "behind") == 0 {
		s.To = seconds(rapid.IntRange(0, 600).Draw(t, "to"))
	}
	if rapid.IntRange(0, 9).Draw(t, "no snapshot") == 0 {
		s.SnapshotBegan = time.Time{}
	}
	for range rapid.IntRange(0, 2).Draw(t, "interruptions") {
		from := rapid.IntRange(0, 20).Draw(t, "from")
		i := cut(from, from+rapid.IntRange(0, 5).Draw(t, "for"))
		if rapid.Bool().Draw(t, "open") {
			i.Until = time.Time{}
		}
		s.Interruptions = append(s.Interruptions, i)
	}
	if rapid.IntRange(0, 4).Draw(t, "hidden") == 0 {
		from := rapid.IntRange(1, 20).Draw(t, "hidden from")
		h := object.HiddenSpan{From: object.Point{ResourceVersion: uint64(from), Time: seconds(from)}}
		if rapid.Bool().Draw(t, "hidden ends") {
			h.Until = object.Point{ResourceVersion: uint64(from) + 3, Time: seconds(from + 3)}
		}
		s.Hidden = append(s.Hidden, h)
	}
	for range rapid.IntRange(0, 2).Draw(t, "former spans") {
		from := rapid.IntRange(1, 20).Draw(t, "former from")
		s.FormerHidden = append(s.FormerHidden, object.HiddenSpan{
			From: object.Point{ResourceVersion: uint64(from), Time: seconds(from)},
			Until: object.Point{
				ResourceVersion: s.ResourceVersion - uint64(rapid.IntRange(0, 20).Draw(t, "former until")),
				Time:            seconds(from + 3),
			},
		})
	}
	return s
}

// entryOf returns what an event says of a scope, nil if it says nothing.
func entryOf(r *object.Report, s *scopeReport) (joined *object.ScopeReport) {
	for n := range r.Scopes {
		e := &r.Scopes[n]
		switch {
		case e.Scope == s.Scope:
			return e
		case e.Scope == "" && e.Resource == s.Resource && s.started:
			joined = e
		}
	}
	return joined
}

func claimsNoMore(t *rapid.T, r *object.Report, e *object.ScopeReport, s *object.ScopeReport) {
	to, snapshot := later(e.To, time.Time{}), e.SnapshotBegan
	if e.ResourceVersion > 0 && to.IsZero() {
		to = r.To
	}
	if e.ResourceVersion > 0 && snapshot.IsZero() {
		snapshot = r.SnapshotBegan
	}
	switch {
	case e.History > s.History, e.History == s.History && e.ResourceVersion > s.ResourceVersion:
		t.Fatalf("%s: up to %d of history %d, and it has reported %d of %d", s.Scope, e.ResourceVersion, e.History,
			s.ResourceVersion, s.History)
	case e.ResourceVersion > 0 && to.After(s.To):
		t.Fatalf("%s: to %v, and it has reported %v", s.Scope, to, s.To)
	case e.ResourceVersion > 0 && !snapshot.IsZero() && (s.SnapshotBegan.IsZero() || snapshot.After(s.SnapshotBegan)):
		t.Fatalf("%s: the last snapshot began at %v, and it has reported %v", s.Scope, snapshot, s.SnapshotBegan)
	}
	for _, i := range s.Interruptions {
		if !slices.ContainsFunc(e.Interruptions, func(o object.Interruption) bool {
			return !o.From.After(i.From) && (o.Until.IsZero() || !i.Until.IsZero() && !o.Until.Before(i.Until))
		}) {
			t.Fatalf("%s: the interruption %v is missing in %v", s.Scope, i, e.Interruptions)
		}
	}
	hidden := slices.Clone(s.Hidden)
	for _, h := range s.FormerHidden {
		if e.ResourceVersion > 0 && e.History == s.History && h.Until.ResourceVersion > e.ResourceVersion {
			// not over at the claim
			hidden = append(hidden, h)
		}
	}
	for _, h := range hidden {
		if !slices.ContainsFunc(e.Hidden, func(o object.HiddenSpan) bool {
			return !o.From.Time.After(h.From.Time) && o.From.ResourceVersion <= h.From.ResourceVersion &&
				(o.Until.IsZero() ||
					!h.Until.IsZero() && !o.Until.Time.Before(h.Until.Time) &&
						o.Until.ResourceVersion >= h.Until.ResourceVersion)
		}) {
			t.Fatalf("%s: the hidden span %v is missing in %v", s.Scope, h, e.Hidden)
		}
	}
}

// TestSizesOfProgress encodes the progress of clusters of several sizes, at rest and after a
// restart of the agent and of the API server.
func TestSizesOfProgress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resources, scopes int // scopes of each resource
		most              int // bytes
	}{
		{2, 1, 1 << 10}, {64, 1, 8 << 10}, {200, 1, 16 << 10}, {5, 202, 8 << 10}, {5, 1000, 64 << 10}, {
			5000, 1, 512 << 10,
		},
	} {
		for _, when := range []string{"at rest", "after a restart"} {
			var all []scopeReport
			for n := range c.resources {
				r := resourceNamed(n)
				for k := range c.scopes {
					s := atRest(r, k)
					if when != "at rest" {
						s.Interruptions = []object.Interruption{{
							From:  seconds(500 + k%60),
							Until: seconds(590 + k%10),
							Why:   object.InterruptedStart,
						}}
					}
					all = append(all, s)
				}
			}
			size := 0
			whole := group(all)
			// as in the first progress of a run
			says := (&sharing{version: "v1.37.1"}).nextStatement(whole, began, began)
			says.addTo(whole)
			for _, n := range sizesOf(t, pack(whole, 512<<10)) {
				size += n
			}
			small := sizesOf(t, pack(whole, 32<<10)) // half of a max_payload of 64 KB
			t.Logf("%d scopes of %d resources, %s: %d bytes; in events of at most 32 KB: %d, the largest has %d bytes",
				c.resources*c.scopes, c.resources, when, size, len(small), slices.Max(small))
			most := c.most
			if when != "at rest" { // each resource has an interruption: the worst case
				most *= 3
			}
			if size > most {
				t.Errorf("%d scopes of %d resources, %s: %d bytes, want at most %d", c.resources*c.scopes, c.resources,
					when, size, most)
			}
			if n := slices.Max(small); n > 32<<10 {
				t.Errorf("an event of %d bytes, and the limit is %d", n, 32<<10)
			}
		}
	}
}

func sizesOf(t *testing.T, events [][]object.ScopeReport) (sizes []int) {
	t.Helper()
	enc := encode.New(encode.Options{
		Cluster:    "prod-eu-1",
		ClusterUID: strings.Repeat("u", 36),
		Writer:     strings.Repeat("w", 16),
		Run:        "12-1795186799000",
	})
	for _, scopes := range events {
		r := &object.Report{Number: 10, Since: began, Scopes: slices.Clone(scopes)}
		share(r, nil)
		shareEtcds(r)
		var ev encode.Event
		if err := enc.Encode(&ev, &object.Delta{Report: r, Observed: began.UnixNano()}); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, ev.Size())
	}
	return sizes
}

// No later event says more of a scope that ends. It keeps its own time, and no other scope gets
// that.
func TestShareKeepsTheTimeOfAScopeThatEnds(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]int{"later": 60, "earlier": -60} {
		ending := atRest(resourceNamed(2), 2)
		ending.To, ending.ends = seconds(600+to), true
		var scopes []object.ScopeReport
		for _, e := range group([]scopeReport{atRest(resourceNamed(1), 1), ending, atRest(resourceNamed(3), 3)}) {
			scopes = append(scopes, e.joined...)
		}
		r := &object.Report{Scopes: scopes}
		share(r, map[string]bool{ending.Scope: true})
		if !r.To.Equal(seconds(601)) || !r.Scopes[1].To.Equal(ending.To) || r.Scopes[1].Scope != ending.Scope {
			t.Errorf("%s: the event has %v and %+v, want the time of the scopes that remain, and %v", name, r.To,
				r.Scopes[1], ending.To)
		}
	}
}
