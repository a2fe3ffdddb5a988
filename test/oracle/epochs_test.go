package oracle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOracleJudgesEpochs falsifies the records of three successive leaders and expects the right
// faults.
func TestOracleJudgesEpochs(t *testing.T) {
	// Each leader first repeats the last records of the previous one, which are not in the
	// checkpoint yet.
	good := func() []Record {
		var list []Record
		for epoch, revs := range map[uint64][2]uint64{1: {1, 50}, 2: {41, 100}, 5: {91, 150}} {
			for rev := revs[0]; rev <= revs[1]; rev++ {
				list = append(list, Record{ID: fmt.Sprint("configmaps/u/", rev), Rev: rev, Epoch: epoch})
			}
		}
		slices.SortFunc(list, func(a, b Record) int { return cmpLives(a, b) })
		return list
	}
	insert := func(at int, recs ...Record) func([]Record) []Record {
		return func(list []Record) []Record { return slices.Insert(list, at, recs...) }
	}
	paused := map[uint64]uint64{1: 100}
	known := Record{ID: "configmaps/u/45", Rev: 45, Epoch: 1}
	for _, tc := range []struct {
		name    string
		late    map[uint64]uint64
		falsify func([]Record) []Record
		want    map[string]int // Faults by kind.
		lateNow int            // The late records of the first term.
	}{
		{"nothing", nil, nil, map[string]int{}, 0},
		{"late, where none may be", nil, insert(60, known), map[string]int{"late": 1}, 1},
		{"late", paused, insert(60, known), map[string]int{}, 1},
		{"late, at the very end", paused, insert(170, known), map[string]int{}, 1},
		{"late, before the next leader has told of it", paused, insert(51, Record{
			ID:    "configmaps/u/100",
			Rev:   100,
			Epoch: 1,
		}), map[string]int{}, 1},
		{"late, and of nobody else", paused, insert(60, Record{ID: "configmaps/u/x", Epoch: 1}), map[string]int{
			"late": 1,
		}, 1},
		{"late, of a change behind the pause", paused, insert(60, Record{
			ID:    "configmaps/u/101",
			Rev:   101,
			Epoch: 1,
		}), map[string]int{"late": 1}, 1},
		{"late, of another that was not paused", paused, insert(120, Record{
			ID:    "configmaps/u/95",
			Rev:   95,
			Epoch: 2,
		}), map[string]int{"late": 1}, 0},
		{"late, and only an earlier leader knows it", map[uint64]uint64{2: 100}, insert(120, Record{
			ID:    "configmaps/u/45",
			Rev:   45,
			Epoch: 2,
		}), map[string]int{}, 0},
		{
			"more than were on their way", paused, insert(60, slices.Repeat([]Record{known}, mostInFlight+2)...),
			map[string]int{"late": 1},
			mostInFlight + 2,
		},
		{"an epoch that was passed over", paused, insert(170, Record{ID: "configmaps/u/45", Epoch: 3}), map[string]int{
			"epoch": 1,
		}, 0},
		{"no epoch", nil, insert(60, Record{ID: "configmaps/u/45"}), map[string]int{"epoch": 1}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list := good()
			if tc.falsify != nil {
				list = tc.falsify(list)
			}
			begin := time.Unix(1000, 0)
			for i := range list {
				list[i].Position, list[i].Stored = uint64(i+1), begin.Add(time.Duration(i)*time.Second)
			}
			terms, faults := JudgeEpochs(list, tc.late)
			if diff := cmp.Diff(tc.want, FaultKinds(faults)); diff != "" {
				t.Errorf("faults (-want +got):\n%s%v", diff, faults)
			}
			var epochs []uint64
			for _, term := range terms {
				epochs = append(epochs, term.Epoch)
			}
			if diff := cmp.Diff([]uint64{1, 2, 5}, epochs); diff != "" {
				t.Errorf("epochs (-want +got):\n%s", diff)
			}
			if terms[0].Late != tc.lateNow {
				t.Errorf("%d late records of the first leader, want %d", terms[0].Late, tc.lateNow)
			}
			if tc.falsify == nil {
				if diff := cmp.Diff([]time.Duration{time.Second, time.Second}, Silences(terms)); diff != "" {
					t.Errorf("silences (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// cmpLives sorts records as the leaders wrote them.
func cmpLives(a, b Record) int {
	if a.Epoch != b.Epoch {
		return int(a.Epoch) - int(b.Epoch)
	}
	return int(a.Rev) - int(b.Rev)
}

// TestOracleSeesEpochs checks that the reader reports an epoch without an election, and a missing
// or malformed one with it.
func TestOracleSeesEpochs(t *testing.T) {
	w := newFakeWorld(t, 30)
	events := w.events(t, Expect(w.history, w.view(10)), 10)
	for _, tc := range []struct {
		elected bool
		epoch   any
		good    bool
	}{
		{true, "3", true}, {true, nil, false}, {true, "0", false}, {true, "03", false}, {true, "x", false}, {
			true, 3, false,
		}, {false, nil, true}, {false, "3", false},
	} {
		e := clone(t, events[len(events)-1])
		if tc.epoch != nil {
			e["epoch"] = tc.epoch
		}
		r := &Reader{Cluster: fakeCluster, ClusterUID: fakeUID, Needles: NewNeedles(fakeMark), Elected: tc.elected}
		if rec := r.Read(messages(t, []map[string]any{e})[0]); (len(rec.Problems) == 0) != tc.good {
			t.Errorf("elected %t, epoch %v: problems %v, want none: %t", tc.elected, tc.epoch, rec.Problems, tc.good)
		}
	}
}
