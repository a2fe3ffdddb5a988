package oracle

import (
	"slices"
	"testing"
)

// TestOracleKnowsWhenAScopeIsObserved asks for moments of a run that is cut, killed and started
// again.
func TestOracleKnowsWhenAScopeIsObserved(t *testing.T) {
	f := newFakeProgress()
	f.judge() // Orders the records.
	whole := ObserversOf(f.records)
	for _, tc := range []struct {
		scope string
		at    float64
		want  bool
	}{
		{"pods/shop", 1.5, false}, // Its snapshot is not complete.
		{"pods/shop", 2.5, true},
		{"pods/shop", 149, true},
		{"pods/shop", 151, false},
		{"pods/shop", 189, false},
		{"pods/shop", 191, true},
		{"pods/web", 170, true},
		{"pods/web", 356, true},
		{"pods/web", 358, false}, // Run 1 claims nothing of the scope.
		{"pods/web", 451, false},
		{"pods/web", 453, true},
		{"pods/web", 539, true},
		{"pods/web", 539.5, false},
		{"secrets", 300, false},
	} {
		got := whole.Exact(tc.scope, second(tc.at))
		if got != tc.want {
			t.Errorf("%s at %.1f s: exact is %t, want %t", tc.scope, tc.at, got, tc.want)
		}
	}

	last, rev := whole.Of("pods/shop"), entryOf(f.at(fakeRun2, 2), "pods").Rev
	if len(last) != 1 || last[0].Rev != rev || !last[0].To.Equal(second(539)) {
		t.Errorf("the last claims of pods/shop: %+v", last)
	}

	at := slices.IndexFunc(f.records, func(r Record) bool { return r.Report != nil && r.Report.Number == 4 })
	cut := ObserversOf(f.records[:at])
	if cut.Exact("pods/shop", second(191)) || cut.Exact("pods/web", second(191)) ||
		!cut.Exact("pods/web", second(177)) {
		t.Error("at 180 s, a scope is known up to another time than the reports say")
	}
	all := []Interruption{span1(InterruptedCut, 150, 190), span1(InterruptedStart, 357, 452)}
	for n, want := range map[int][]Interruption{at: nil, len(f.records): all} {
		all := ObserversOf(f.records[:n]).Of("pods/shop")
		if len(all) != 1 || !slices.Equal(all[0].Said, want) || (all[0].Open != nil) != (want == nil) {
			t.Errorf("after %d records, the interruptions of pods/shop are not %v: %v", n, want, all)
		}
	}

	rec := f.at(fakeRun1, 6) // Without it and the report before it, nothing is known from 237 to its since.
	lost := slices.DeleteFunc(slices.Clone(f.records), func(r Record) bool { return r.ID == f.at(fakeRun1, 5).ID })
	rec.Report.Since = second(290)
	o := ObserversOf(lost)
	if o.Exact("pods/web", second(250)) || !o.Exact("pods/web", second(291)) ||
		!o.Exact("pods/web", second(236)) {
		t.Error("a lost report hides another span than the one since the last report")
	}
}
