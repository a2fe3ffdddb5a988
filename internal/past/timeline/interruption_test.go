package timeline_test

import (
	"testing"
)

// Inside an interruption, no agent observes the scope: versions may have a time after their own.
func TestScopesWithInterruptions(t *testing.T) {
	testScopes(t, []scopeCase{
		{
			"a run that ended the scope and began it again, while another agent was killed", `
			0 begin @10 initial
			0 started S1 @10 initial
			0.1 completed S1 @10
			0.2 begin @12 initial writer=v
			1 progress @20
			1.1 end taken-over @20 writer=v
			6 begin @40 continued writer=v
			7 progress @50 writer=v
			8 progress @60 writer=v`, "3", "late from 1 to 6: unheard",
		},
		{
			"the same, and its progress had spoken of the scope", `
			0 begin @10 initial
			0 started S1 @10 initial
			0.1 completed S1 @10
			0.2 begin @12 initial writer=v
			1 progress @20
			1.05 progress @20 writer=v
			1.1 end taken-over @20 writer=v
			6 begin @40 continued writer=v
			7 progress @50 writer=v
			8 progress @60 writer=v`, "3", "late from 1.05 to 6: start",
		},
		{
			"the first progress of a run claims less than when the run began to observe the scope", `
			0 begin @10 initial
			0 started S1 @10 initial
			0.1 completed S1 @10
			5 begin @10 continued run=1-1795176294000
			6 progress @10 to=4.95 since=-5 away=start/4.9-4.95 ends run=1-1795176294000
			14 begin @10 continued run=2-1795176828000
			15 progress @20 since=5 away=start/13.8-14 run=2-1795176828000`, "5",
			"late from 4.95 to 14: start, stopped at 6",
		},
		{
			"the agent was away", steady + `
			14 progress @60 away=closed/4.2-13.9
			15 progress @60 away=closed/4.2-13.9`, "9", "late from 4.2 to 13.9: closed",
		},
		{
			"before the agent was away", steady + `
			14 progress @60 away=closed/4.2-13.9`, "4.1", "exact from 40 to 60",
		},
		{
			"after the agent was away", steady + `
			14 progress @60 away=closed/4.2-13.9`, "13.9", "exact from 40 to 60",
		},
		{
			"the agent is still away", steady + `
			5 progress @40 to=4.2 away=blocked/4.2
			6 progress @40 to=4.2 away=blocked/4.2`, "4.5", "unknown from 40",
		},
		{
			"an interruption that was not over at first", steady + `
			5 progress @50 away=silent/4.2
			6 progress @60 away=silent/4.2-5.5`, "4.5", "late from 4.2 to 5.5: silent",
		},
		{
			"an interruption that was not over at first, and was before the moment", steady + `
			5 progress @40 to=4.2 away=blocked/4.2
			6 progress @60 away=blocked/4.2-4.4`, "4.5", "exact from 40 to 60",
		},
		{
			"two interruptions around the moment", steady + `
			5 progress @50 away=silent/4.1-4.6 away=cut/4.3-4.8`, "4.5", "late from 4.1 to 4.8: silent",
		},
		{
			"progress that comes late says what was before", steady + `
			14 progress @60 since=4`, "9", "exact from 40 to 60",
		},
		{
			"progress is missing", steady + `
			14 progress @60 since=4.5`, "4.2", "late from 4 to 4.5: unheard",
		},
		{
			"after progress that is missing", steady + `
			14 progress @60 since=4.5`, "4.6", "exact from 40 to 60",
		},
		{
			"progress is missing, and an interruption was not over before", steady + `
			5 progress @50 away=silent/4.5
			20 progress @60 since=10`, "4.7", "late from 4.5 to 10: silent",
		},
		{
			"an agent was killed", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "9", "late from 4 to 14.2: start",
		},
		{
			"an agent was killed, and began again", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "14.3", "exact from 40 to 60",
		},
		{
			"an agent was killed, and begins again", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8 run=1-1795176830000
			16 progress @60 since=13.8 away=start/13.8-15.5 run=1-1795176830000`, "9", "late from 4 to 15.5: start",
		},
		{
			"a run that does not say how it began", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=5 run=1-1795176830000`, "9", "late from 4 to 14: start",
		},
		{
			"a run that does not say how it began, and was away later", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=5 away=closed/14.2-14.5 run=1-1795176830000`, "9", "late from 4 to 14: start",
		},
		{
			"a run that had ended", steady + `
			4.5 progress @42 ends
			4.8 begin @40 continued run=1-1795176280000
			5 progress @60 since=4.6 away=start/4.5-4.9 run=1-1795176280000`, "4.7",
			"late from 4.5 to 4.9: start, stopped at 4.5",
		},
		{
			"before the end of that run", steady + `
			4.5 progress @42 ends
			4.8 begin @40 continued run=1-1795176280000
			5 progress @60 since=4.6 away=start/4.5-4.9 run=1-1795176280000`, "4.4", "exact from 40 to 42",
		},
		{
			"what a former run says late counts for nothing", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000
			16 progress @99 since=4`, "rv:70", "unknown from 60",
		},
		{
			"a copy of progress", steady + `
			14 progress @60 away=closed/4.2-13.9
			14 progress @60 since=13.9`, "9", "late from 4.2 to 13.9: closed",
		},
		{
			"progress that claims nothing", steady + `
			5 progress away=listed/4.1-4.4
			6 progress @60`, "4.2", "late from 4.1 to 4.4: listed",
		},
		{
			"another agent observed while the first one was away", steady + `
			2 begin @30 writer=v
			5 progress @50 away=cut/4.2-4.8
			5 progress @50 writer=v`, "4.5", "exact from 40 to 50",
		},
		{
			"another agent has begun to observe later", steady + `
			14 begin @60 writer=v
			14.5 progress @60 since=14 writer=v`, "9", "late from 4 to 14: unheard",
		},
		{
			"the agent was away, by resourceVersion", steady + `
			14 progress @60 away=closed/4.2-13.9
			15 progress @60`, "rv:50", "exact",
		},
	})
}
