package timeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

func TestDiff(t *testing.T) {
	from := timeline.NewState(timeline.AtVersion(20, 0), timeline.Options{})
	to := timeline.NewState(timeline.AtVersion(30, 0), timeline.Options{})
	both := timeline.States{from, to}
	for _, e := range record(`
		0 started S1 @10
		0 r same/1 @5 S1
		0 r gone/2 @6 S1
		0 r swept/8 @6 S1
		0 completed S1 @10
		1 c changed/3 @12
		1 c left/4 @13
		2 u changed/3 @21 was=12
		1 c again/5 @20
		2 d gone/2 @22
		2 l left/4 @23
		2 d again/5 @24
		2 c again/6 @25
		2 gap expired 25-28 since=1
		3 started S2 @29
		3 c new/7 @30
		3 r same/1 @5 S2
		3 r changed/3 @21 S2
		3 r again/6 @25 S2
		3 completed S2 @29
		3 c later/9 @31
		4 progress @35`) {
		both.Add(e)
	}
	if !both.Done() {
		t.Error("the record has passed both moments, and the States are not done")
	}
	var got []string
	for _, d := range timeline.Diff(from, to) {
		line := ""
		for _, v := range []*timeline.Version{d.Before, d.After} {
			if v == nil {
				line += " -"
			} else {
				line += fmt.Sprintf(" %s %s/%s@%s", v.Op, v.Name, v.UID, v.ResourceVersion)
			}
		}
		got = append(got, line)
	}
	want := []string{
		" c again/5@20 -", " - c again/6@25", " c changed/3@12 u changed/3@21", " r gone/2@6 -",
		" c left/4@13 l left/4@23", " - c new/7@30", " r swept/8@6 -",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if n := len(to.Left()); n != 1 {
		t.Errorf("%d objects have left, want 1", n)
	}
	same := func(s *timeline.State) *timeline.Version {
		return s.Objects()[slices.IndexFunc(s.Objects(), func(v *timeline.Version) bool { return v.Name == "same" })]
	}
	if same(from) != same(to) {
		t.Error("an object that is in both States is kept twice")
	}
}

// A Fold returns the version of each event, and the ends of objects that no event states.
func TestFoldVersions(t *testing.T) {
	f := timeline.NewFold(timeline.Moment{}, timeline.Options{})
	var got []string
	for _, e := range record(`
		0 started S1 @10
		0 r web/1 @5 S1
		0 completed S1 @10
		1 u web/1 @11 was=5
		1 u web/1 @11 was=5
		1 c api/2 @12
		2 c api/3 @13
		3 gap dead-letter 11-14 since=3 letter=pods/1/d
		4 progress @20
		5 started S2 @30
		5 completed S2 @30`) {
		for _, v := range f.Add(e) {
			got = append(got,
				fmt.Sprintf("%s %s/%s @%s inferred=%t event=%t", v.Op, v.Name, v.UID, v.ResourceVersion, v.Inferred,
					v.ID != ""))
		}
	}
	want := []string{
		"r web/1 @5 inferred=false event=true",
		"u web/1 @11 inferred=false event=true",
		"c api/2 @12 inferred=false event=true",
		"d api/2 @13 inferred=true event=false",
		"c api/3 @13 inferred=false event=true",
		"d web/1 @14 inferred=true event=false",
		"d api/3 @30 inferred=true event=false",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A snapshot may read a known version again. The first version of an object is news, also if its
// resourceVersion is not a number.
func TestFoldKnownVersions(t *testing.T) {
	f := timeline.NewFold(timeline.Moment{}, timeline.Options{})
	var got []string
	for _, e := range record(`
		0 started S1 @10
		0 r web/1 @5 S1
		0 r api/2 @x1 S1
		0 completed S1 @10
		5 gap content-changed 10-20 @20 since=4
		6 started S2 @20
		6 r web/1 @5 S2
		7 completed S2 @20`) {
		for _, v := range f.Add(e) {
			got = append(got, fmt.Sprintf("%s %s @%s again=%t", v.Op, v.Name, v.ResourceVersion, v.Again))
		}
	}
	want := []string{
		"r web @5 again=false",
		"r api @x1 again=false",
		"r web @5 again=true",
		"d api @20 again=false",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A snapshot may have no read of an object that changed since its start. The change shows that the
// object exists, even if the change is after the moment.
func TestStateWithAChangeAfterTheMoment(t *testing.T) {
	s := timeline.NewState(timeline.AtVersion(25, 0), timeline.Options{})
	for _, e := range record(`
		0 c web/1 @10
		0 c api/2 @11
		0 started S1 @20
		1 u web/1 @26 was=10
		2 completed S1 @20
		3 progress @30`) {
		s.Add(e)
	}
	if all := s.Objects(); len(all) != 1 || all[0].Name != "web" || all[0].ResourceVersion != "10" {
		t.Errorf("%+v, want web as of 10", all)
	}
}

// A snapshot shows a gap that no event announces: the agent lost its position, or etcd was restored
// unnoticed. Announced gaps are returned too, up to the moment.
func TestFoldGaps(t *testing.T) {
	f := timeline.NewFold(timeline.At(minute("7")), timeline.Options{})
	var got []string
	for _, e := range record(`
		0 started S1 @10
		0 completed S1 @10
		1 progress @20
		2 started S2 @30
		2 completed S2 @30
		3 started S3 @40 initial
		3 completed S3 @40
		4 gap expired 40-50 since=3
		5 started S4 @60
		5 completed S4 @60
		6 started S5 @35
		6 completed S5 @35
		8 gap expired 35-70 since=6`) {
		f.Add(e)
		if g := f.Gap(); g != nil {
			got = append(got,
				fmt.Sprintf("%s %s-%s since=%s", g.Stream.Reason, g.Stream.FromResourceVersion,
					g.Stream.ToResourceVersion, g.Stream.Since.Sub(minute("0"))))
		}
	}
	want := []string{"checkpoint-lost 30-40 since=2m0s", "expired 40-50 since=3m0s", "rewound 60-35 since=5m0s"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	byVersion := timeline.NewFold(timeline.AtVersion(40, 0), timeline.Options{})
	for _, e := range record(`
		0 started S1 @10
		0 completed S1 @10
		1 progress @20
		6 started S2 @30
		6 completed S2 @30
		12 started S3 @35 scope=pods/shop
		12 completed S3 @35 scope=pods/shop
		18 started S4 @36 scope=pods/shop
		18 completed S4 @36 scope=pods/shop`) {
		byVersion.Add(e)
		if g := byVersion.Gap(); g != nil {
			t.Errorf("%s shows a gap (%s), where a snapshot follows silence", e.ID, g.Stream.Reason)
		}
	}
}

// After a gap of reason content-changed, a snapshot shows known versions in another form. Earlier
// moments keep the former one, even if more of the record is read. A difference shows the versions
// whose form has changed.
func TestOtherForms(t *testing.T) {
	const lines = `
		0 started S1 @10
		0 r same/1 @5 S1 after={"x":1}
		0 r other/2 @6 S1 after={"x":1}
		0.1 completed S1 @10
		1 u other/2 @20 was=6 after={"x":2}
		2 progress @25
		3 progress @30
		4 gap content-changed 30-35 since=3
		4 started S2 @40
		4 r same/1 @5 S2 after={"x":1}
		4 r other/2 @20 S2 after={"x":2,"default":true}
		4.1 completed S2 @40
		5 u other/2 @45 was=20 after={"x":3,"default":true}
		6 progress @50
		7 progress @60`
	for _, c := range []struct{ at, want string }{
		{"rv:20", `other@20 {"x":2} same@5 {"x":1}`},
		{"rv:30", `other@20 {"x":2} same@5 {"x":1}`},
		{"rv:40", `other@20 {"x":2,"default":true} again same@5 {"x":1}`},
		{"rv:50", `other@45 {"x":3,"default":true} same@5 {"x":1}`},
	} {
		s := timeline.NewState(parse(t, c.at), timeline.Options{})
		for _, e := range record(lines) {
			s.Add(e)
		}
		var got []string
		for _, v := range s.Objects() {
			text := fmt.Sprintf("%s@%s %s", v.Name, v.ResourceVersion, v.After)
			if v.Again && v.Name == "other" {
				text += " again"
			}
			got = append(got, text)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("at %s: %s, want %s", c.at, text, c.want)
		}
		if got := s.Scopes()[0].Certainty; got != certainty.Exact {
			t.Errorf("at %s: %v", c.at, got)
		}
	}
	before := timeline.NewState(timeline.AtVersion(30, 0), timeline.Options{})
	after := timeline.NewState(timeline.AtVersion(40, 0), timeline.Options{})
	both := timeline.States{before, after}
	for _, e := range record(lines) {
		both.Add(e)
	}
	for _, all := range [][]timeline.Difference{timeline.Diff(before, after), timeline.Diff(after, before)} {
		if len(all) != 1 || all[0].Before.Name != "other" || all[0].After.Name != "other" {
			t.Errorf("the differences are %+v", all)
		}
	}
}
