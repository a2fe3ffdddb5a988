package timeline_test

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

const (
	// twins is a resource and its projection, whose objects have the uids of the originals.
	twins = `
		0 started S1 @20
		0 r web/1 @10 S1
		0 r api/2 @11 S1
		0 completed S1 @20
		0 started S3 @20 group=twins.example.com
		0 r web/1 @10 S3 group=twins.example.com
		0 r api/2 @11 S3 group=twins.example.com
		0 completed S3 @20 group=twins.example.com
		1 progress @20
		1 progress @20 group=twins.example.com
		2 u web/1 @21 was=10
		2 d api/2 @22 group=twins.example.com
		3 progress @22
		3 progress @22 group=twins.example.com
		4 progress @22
		4 progress @22 group=twins.example.com`
	// reborn is a cluster, and another one that was created under its name. Its API server keeps
	// resourceVersions of its own. A backup may bring objects with their uids.
	reborn = `
		0 started S1 @50 cluster=A
		0 r web/1 @40 S1 cluster=A
		0 r api/2 @41 S1 cluster=A
		0 completed S1 @50 cluster=A
		0 started S2 @20 cluster=B
		0 r web/1 @10 S2 cluster=B
		0 r db/3 @12 S2 cluster=B
		0 completed S2 @20 cluster=B
		1 progress @50 cluster=A
		1 progress @20 cluster=B
		2 u web/1 @21 was=10 cluster=B
		2 d api/2 @51 cluster=A
		3 progress @51 cluster=A
		3 progress @21 cluster=B
		4 progress @51 cluster=A
		4 progress @21 cluster=B`
)

// keyed returns the key of a version, and its resourceVersion.
func keyed(v *timeline.Version) string {
	if v == nil {
		return "-"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s/%s @%s", v.ClusterUID, v.Resource, v.Name, v.UID, v.ResourceVersion))
}

// Objects of two resources may have one uid, and so may objects of two clusters of one name. The
// state has each of them, with its own changes.
func TestObjectsOfOneUID(t *testing.T) {
	for name, c := range map[string]struct {
		lines         string
		before, after []string
		changes       []string
	}{
		"a projection of a resource": {
			twins,
			[]string{
				"pods api/2 @11", "pods web/1 @10", "pods.twins.example.com api/2 @11",
				"pods.twins.example.com web/1 @10",
			},
			[]string{"pods api/2 @11", "pods web/1 @21", "pods.twins.example.com web/1 @10"},
			[]string{"pods web/1 @10 > pods web/1 @21", "pods.twins.example.com api/2 @11 > -"},
		},
		"two clusters of one name": {
			reborn,
			[]string{"A pods api/2 @41", "A pods web/1 @40", "B pods db/3 @12", "B pods web/1 @10"},
			[]string{"A pods web/1 @40", "B pods db/3 @12", "B pods web/1 @21"},
			[]string{"A pods api/2 @41 > -", "B pods web/1 @10 > B pods web/1 @21"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			states := timeline.States{
				timeline.NewState(timeline.At(minute("1")), timeline.Options{}),
				timeline.NewState(timeline.At(minute("2")), timeline.Options{}),
			}
			for _, e := range record(c.lines) {
				states.Add(e)
			}
			for i, want := range [][]string{c.before, c.after} {
				var got []string
				for _, v := range states[i].Objects() {
					got = append(got, keyed(v))
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("state %d: -want +got\n%s", i, diff)
				}
				if scopes := states[i].Scopes(); len(scopes) != 2 || certainty.Worst(scopes) != certainty.Exact {
					t.Errorf("state %d: want two exact scopes, got %+v", i, scopes)
				}
			}
			var changes []string
			for _, d := range timeline.Diff(states[0], states[1]) {
				changes = append(changes, keyed(d.Before)+" > "+keyed(d.After))
			}
			if diff := gocmp.Diff(c.changes, changes); diff != "" {
				t.Errorf("difference: -want +got\n%s", diff)
			}
		})
	}
}

// Gaps, withheld versions, dead letters and objects that left are those of one cluster, not of
// another one of its name.
func TestCertaintyOfTwoClustersOfOneName(t *testing.T) {
	s := timeline.NewState(timeline.At(minute("2")), timeline.Options{})
	for _, e := range record(reborn + `
		1 gap compacted 20-21 since=1 cluster=A
		1 gap dead-letter 41-51 letter=pods/2/51 cluster=A
		2 l web/1 @52 cluster=A
		2 u db/3 @30 skipped=3 cluster=A
		5 progress @60 cluster=A`) {
		s.Add(e)
	}
	for _, of := range s.Scopes() {
		bad := of.Certainty != certainty.Exact || of.Left+of.Skipped+len(lettersOf(&of)) > 0
		if bad != (of.ClusterUID == "A") {
			t.Errorf("cluster %s: %+v", of.ClusterUID, of)
		}
	}
}

// A dead letter of a projection is not that of the original, whose object has the same uid.
func TestDeadLetterOfOneUID(t *testing.T) {
	s := timeline.NewState(timeline.At(minute("2")), timeline.Options{})
	for _, e := range record(twins + `
		2 gap dead-letter 10-23 letter=pods.twins.example.com/1/23 group=twins.example.com
		2 u web/1 @24 was=21`) {
		s.Add(e)
	}
	got := map[string]int{}
	for _, of := range s.Scopes() {
		got[of.Name] = len(lettersOf(&of))
	}
	if diff := gocmp.Diff(map[string]int{"pods": 0, "pods.twins.example.com": 1}, got); diff != "" {
		t.Errorf("dead letters: -want +got\n%s", diff)
	}
}

// Another object, of another resource or cluster, has lines of its own.
func TestBlameOfOneUID(t *testing.T) {
	for name, lines := range map[string]string{
		"a projection of a resource": twins,
		"two clusters of one name":   reborn,
	} {
		t.Run(name, func(t *testing.T) {
			var b timeline.Blame
			f := timeline.NewFold(timeline.At(minute("4")), timeline.Options{})
			var last *timeline.Version
			for _, e := range record(lines) {
				for _, v := range f.Add(e) {
					if v.UID != "1" || last != nil && last.ResourceVersion == "21" {
						continue
					}
					last = v
					if err := b.Add(v); err != nil {
						t.Fatal(err)
					}
				}
			}
			all, err := b.Lines()
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range all {
				if by := l.Origin.Version; by.ClusterUID != last.ClusterUID || by.Resource != last.Resource {
					t.Errorf("%s: set by %s, which is of another object than %s", l.Text, keyed(by), keyed(last))
				}
			}
		})
	}
}
