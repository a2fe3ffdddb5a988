package timeline_test

import (
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Filters withhold versions: the state may have an earlier version of an object than the last one.
func TestScopesWithFilters(t *testing.T) {
	testScopes(t, []scopeCase{
		{
			"filters hide a version", steady + `
			5 progress @50 hidden=4.2/42`, "4.5", "uncertain from 42: filtered",
		},
		{
			"filters hide a version, by resourceVersion", steady + `
			5 progress @50 hidden=4.2/42`, "rv:45", "uncertain from 42: filtered",
		},
		{
			"filters hide a version later", steady + `
			5 progress @50 hidden=4.2/42`, "rv:41", "exact",
		},
		{
			"filters hide a version later, by time", steady + `
			5 progress @50 hidden=4.2/42`, "4.1", "exact from 40 to 50",
		},
		{
			"filters hid a version", steady + `
			5 progress @50 hidden=4.2/42
			6 progress @60 hidden=4.2/42-5.5/55`, "rv:52", "uncertain from 42 to 55: filtered",
		},
		{
			"the filters hide nothing any more", steady + `
			5 progress @50 hidden=4.2/42
			6 progress @60 hidden=4.2/42-5.5/55`, "rv:55", "exact",
		},
		{
			"filters hide a version now", steady + `
			5 progress @50 hidden=4.2/42`, "now 5", "uncertain from 42: filtered",
		},
		{
			"filters hide a version at the end", steady + `
			5 progress @50 hidden=4.2/42`, "", "uncertain from 42: filtered",
		},
		{
			"filters hide nothing now", steady + `
			5 progress @50 hidden=4.2/42
			6 progress @60 hidden=4.2/42-5.5/55`, "now 6", "exact from 60",
		},
		{
			"filters hid a version, and progress is missing", steady + `
			5 progress @50 hidden=4.2/42
			20 progress @60 since=10`, "rv:55", "uncertain from 42 to 60: filtered",
		},
		{
			"filters hid a version, and a snapshot has read it", steady + `
			5 progress @50 hidden=4.2/42
			5.1 started S2 @55
			5.2 completed S2 @55`, "rv:55", "exact",
		},
		{
			"an agent with filters was killed, and nobody says what they withheld at its end", steady + `
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:43",
			"uncertain from 41 to 45: filtered",
		},
		{
			"from where its next run goes on, that run says it", steady + `
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:45", "exact",
		},
		{
			"a snapshot has passed what filters may have withheld, and no progress has reported that", steady + `
			4.1 begin @40 continued noise
			5 started S2 @50 noise
			5.1 completed S2 @50`, "rv:45", "uncertain from 40: filtered",
		},
		{
			"a later event of that run says from where it goes on", steady + `
			14 begin continued noise run=1-1795176830000
			14.1 started S2 @45 noise run=1-1795176830000
			14.2 completed S2 @45 run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:50", "exact",
		},
		{
			"etcd was restored, and no progress says what the filters withheld meanwhile", steady + `
			4.1 begin @40 continued noise
			5 progress @60 h1`, "rv:50/h1", "uncertain from 41 to 60/h1: filtered",
		},
		{
			"an agent was killed before its first progress, and its filters may have withheld reads", `
			1 begin @10 initial where
			2 started S1 @10 where
			3 completed S1 @10
			14 begin @10 continued where run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:10",
			"uncertain from 10 to 60: filtered",
		},
		{
			"a snapshot whose reads filters may have withheld, and no progress has reported that", `
			1 begin @10 initial where
			2 started S1 @10 where
			3 completed S1 @10`, "rv:10", "uncertain from 10: filtered",
		},
		{
			"filters hide objects, also from the reads of the last snapshot", `
			1 begin @10 initial where
			2 started S1 @10 where
			3 completed S1 @10
			4 progress @50 hidden=2/10
			5 started S2 @55 where
			6 completed S2 @55`, "rv:55", "uncertain from 50: filtered",
		},
		{
			"filters hid objects from the last snapshot, and do so no more", `
			1 begin @10 initial where
			2 started S1 @10 where
			3 completed S1 @10
			4 progress @20 hidden=2/10
			5 started S2 @22 where
			6 completed S2 @22
			7 begin @25 continued`, "rv:22", "uncertain from 10: filtered",
		},
		{
			"a hidden span without resourceVersions, after a restore of etcd", strings.ReplaceAll(steady, "@", "h1 @") + `
			5 progress @50 h1 hidden=4.2/-4.6/`, "rv:45/h1",
			"uncertain to 50/h1: filtered",
		},
		{
			"an agent was killed while its filters hid a version", steady + `
			5 progress @43 hidden=4.2/42
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:44",
			"uncertain from 44 to 45: filtered",
		},
		{
			"the next run of an agent that was killed hides nothing", steady + `
			5 progress @43 hidden=4.2/42
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:45", "exact",
		},
		{
			"the next run of an agent that was killed hides nothing, by time", steady + `
			5 progress @43 hidden=4.2/42
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "14.5", "exact from 43 to 60",
		},
		{
			"the next run of an agent that was killed hides something still", steady + `
			5 progress @43 hidden=4.2/42
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 hidden=13.7/45 run=1-1795176830000`, "rv:50",
			"uncertain from 45: filtered",
		},
		{
			"an agent with filters ended in good order", steady + `
			4.5 progress @42 ends
			14 begin @42 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:43", "exact",
		},
		{
			"an agent with filters ended in good order, and its next run was killed before its first progress",
			steady + `
			4.5 progress @42 ends
			10 begin @42 continued noise run=1-1795176590000
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:43",
			"uncertain from 43 to 45: filtered",
		},
		{
			"progress of an agent with filters is missing", steady + `
			4.1 begin @40 continued noise
			20 progress @60 since=10`, "rv:50", "uncertain from 41 to 60: filtered",
		},
		{
			"another agent shows what the filters of the first one hide", steady + `
			2 begin @30 writer=v
			5 progress @50 hidden=4.2/42
			5 progress @50 writer=v`, "4.5", "exact from 40 to 50",
		},
		{
			"another agent showed what the filters of the first one hid, and is silent now", steady + `
			2 begin @30 writer=v
			5 progress @50 hidden=4.2/42
			5 progress @50 writer=v
			15 progress @60 since=5`, "rv:45", "exact",
		},
		{
			"another agent is silent, and does not show what the filters of the first one hide now", steady + `
			2 begin @30 writer=v
			3 progress @40 writer=v
			15 progress @60 since=4 hidden=4.2/42`, "now 15", "uncertain from 42: filtered",
		},
	})
}

// An agent was killed, and did not report what its filters withheld at the end. That matters only
// if one of its rules withholds versions. A rule that only selects objects does not.
func TestRulesThatWithholdVersions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule consume.Rule
		want certainty.Level
	}{
		"by operation":     {consume.Rule{Operations: []string{"created"}}, certainty.Uncertain},
		"by a condition":   {consume.Rule{Where: "true"}, certainty.Uncertain},
		"by noise":         {consume.Rule{Noise: []string{"status-only"}}, certainty.Uncertain},
		"none is withheld": {consume.Rule{LabelSelector: "app=web"}, certainty.Exact},
	} {
		s := timeline.NewState(parse(t, "rv:43"), timeline.Options{})
		for _, e := range record(steady + `
			14 begin @45 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`) {
			if e.Stream != nil {
				e.Stream.Rules = []consume.Rule{c.rule}
			}
			s.Add(e)
		}
		if got := certainty.Worst(s.Scopes()); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
