package timeline_test

import (
	"fmt"
	"testing"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// After a gap, the state may lack versions, until a snapshot or a claim shows that it is right.
func TestScopesWithGaps(t *testing.T) {
	const reformed = `
		4.5 gap content-changed 32-41 since=3.2
		5 started S2 @50
		5 r web/1 @5 S2
		6 completed S2 @50
		7 progress @60
		8 progress @70`
	testScopes(t, []scopeCase{
		{
			"a position that was lost, and the first start of the snapshot is gone", steady + `
			5 started S2 @50 initial continued run=1-1795176000001
			6 completed S2 @50
			7 progress @60 run=1-1795176000001`, "rv:55", "uncertain from 40: checkpoint-lost",
		},
		{
			"an agent that was killed says less", steady + `
			5 progress @25
			6 gap expired 25-50 since=5
			7 progress @60
			8 progress @60`, "rv:35", "exact",
		},
		{
			"a gap that was open at the end of the scope", steady + `
			4.5 gap expired 40-45
			5 end deselected @50`, "4.4", "uncertain from 40: expired, open at its end at 5",
		},
		{
			"a gap", steady + `
			14 gap expired 40-60 since=4
			15 progress @70
			16 progress @80`, "rv:50", "uncertain from 40 to 60: expired",
		},
		{
			"a gap whose event comes again after the next snapshot", steady + `
			14 gap expired 40-60 since=4
			14.1 started S2 @60
			14.2 completed S2 @60
			14 gap expired 40-60 since=4
			15 progress @60
			16 progress @60`, "14.5", "exact from 60 to 60",
		},
		{
			"a gap that an agent with a slower clock reports", steady + `
			3.9 gap expired 40-60 since=3.8
			15 progress @70
			16 progress @80`, "rv:50", "uncertain from 40 to 60: expired",
		},
		{
			"the end of a gap", steady + `
			14 gap expired 40-60 since=4
			15 progress @70
			16 progress @80`, "rv:60", "exact",
		},
		{
			"a gap, by time", steady + `
			14 gap expired 40-60 since=4
			15 progress @70
			16 progress @80`, "14.5", "uncertain from 40 to 60: expired",
		},
		{
			"a gap that was recovered", steady + `
			14 gap expired 40-60 since=4 recovered
			15 progress @70
			16 progress @80`, "rv:50", "uncertain from 40 to 60: expired recovered",
		},
		{
			"a gap that was recovered, of an agent that was killed and remembers less than the bus has", steady + `
			14 gap expired 30-60 since=3 recovered
			15 progress @70
			16 progress @80`, "rv:50", "uncertain from 30 to 60: expired recovered",
		},
		{
			"up to what the bus had before that gap", steady + `
			14 gap expired 30-60 since=3 recovered
			15 progress @70
			16 progress @80`, "rv:40", "exact",
		},
		{
			"two gaps that were recovered, with an agent killed in between", steady + `
			14 gap expired 40-60 since=4 recovered
			15 gap expired 30-70 since=3 recovered
			16 progress @80
			17 progress @90`, "rv:50", "uncertain from 30 to 70: expired recovered",
		},
		{
			"content that is read otherwise", steady + `
			4.5 gap content-changed 40-40 since=4 recovered
			5 progress @70`, "rv:50", "exact",
		},
		{
			"another form: where the last one was known", steady + reformed, "rv:32", "exact",
		},
		{
			"another form: until a snapshot has it", steady + reformed, "rv:33",
			"uncertain from 32 to 50: content-changed",
		},
		{
			"another form: after the snapshot", steady + reformed, "rv:50", "exact",
		},
		{
			"another form: a claim says nothing of it", steady + reformed, "3.5",
			"uncertain from 32 to 50: content-changed",
		},
		{
			"another form: before, by time", steady + reformed, "3.1", "exact from 30 to 40",
		},
		{
			"another form: after, by time", steady + reformed, "6.5", "exact from 50 to 60",
		},
		{
			"another form, and no snapshot", steady + `
			5 gap content-changed 32-41 since=3.2
			6 progress @60
			7 progress @70`, "6.5", "uncertain from 32: content-changed",
		},
		{
			"a gap that comes again during the snapshot after it", steady + `
			14 gap compacted 40-60 since=4
			15 started S2 @65
			14 gap compacted 40-60 since=4
			16 completed S2 @65
			17 progress @70`, "rv:66", "exact",
		},
		{
			"compacted: nothing is right before the next snapshot", steady + `
			14 gap compacted 40-60 since=4
			15 progress @70
			16 progress @80`, "rv:75", "uncertain from 40: compacted",
		},
		{
			"compacted", steady + `
			14 gap compacted 40-60 since=4
			15 started S2 @65
			16 completed S2 @65
			17 progress @80`, "rv:62", "uncertain from 40 to 65: compacted",
		},
		{
			"restored, before", steady + `
			14 gap rewound 45-20 since=4 h1
			14 started S2 @21 h1
			15 completed S2 @21 h1
			17 progress @30 h1`, "rv:40", "exact",
		},
		{
			"restored, lost", steady + `
			14 gap rewound 45-20 since=4 h1
			14 started S2 @21 h1
			15 completed S2 @21 h1
			17 progress @30 h1`, "rv:46", "uncertain from 45 to 21/h1: rewound",
		},
		{
			"restored, after", steady + `
			14 gap rewound 45-20 since=4 h1
			14 started S2 @21 h1
			15 completed S2 @21 h1
			17 progress @30 h1`, "rv:21/h1", "exact",
		},
		{
			"restored, and no agent knew it", steady + `
			14 started S2 @21
			15 completed S2 @21
			17 progress @30`, "14.5", "unknown to 21",
		},
		{
			"the position was lost, on a bus that cannot be asked", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "rv:50", "uncertain from 40 to 60: checkpoint-lost",
		},
		{
			"before the position was lost", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "rv:40", "exact",
		},
		{
			"after the position was lost", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "rv:60", "exact",
		},
		{
			"the position was lost, by time", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "4.3", "uncertain from 40 to 60: checkpoint-lost",
		},
		{
			"after the position was lost, by time", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "4.8", "exact from 60 to 70",
		},
		{
			"the position was lost, and the snapshot was started again", steady + `
			4.5 started S2 @60 initial
			4.6 gap compacted 60-80 since=4.5
			4.7 started S3 @80 initial
			4.8 completed S3 @80
			5 progress @90`, "rv:50", "uncertain from 40 to 80: checkpoint-lost",
		},
		{
			"the position was lost, and the bus lacks the first snapshot that says so", steady + `
			4.6 gap compacted 60-80 since=4.5
			4.7 started S3 @80 initial
			4.8 completed S3 @80
			5 progress @90`, "rv:50", "uncertain from 40 to 80: checkpoint-lost",
		},
		{
			"a long silence, and the position was lost", steady + `
			14 started S2 @60 initial
			15 completed S2 @60
			16 progress @70`, "9", "uncertain from 40 to 60: checkpoint-lost",
		},
		{
			"a dead letter", steady + `
			4.1 c api/2 @41
			4.2 gap dead-letter 41-42 since=4.2 letter=pods/2/42
			5 progress @45`, "rv:45", "uncertain from 41 to 42: dead-letter [pods/2/42]",
		},
		{
			"a dead letter, and an event after it", steady + `
			4.1 c api/2 @41
			4.2 gap dead-letter 41-42 since=4.2 letter=pods/2/42
			4.3 u api/2 @43 was=42
			5 progress @45`, "rv:45", "exact",
		},
		{
			"a dead letter that is a deletion", steady + `
			4.1 c api/2 @41
			4.2 gap dead-letter 41-42 since=4.2 letter=pods/2/d
			5 progress @45`, "rv:45", "exact",
		},
	})
}

// A run that was killed has sent a Job, which is deleted before the next run lists. No gap that is
// recovered shows the deletion: the Job is shown until the snapshot after the gap.
func TestObjectThatCameAndWentInARecoveredGap(t *testing.T) {
	const all = `
		0 started S1 @10
		0.1 completed S1 @10
		1 progress @20
		1.2 c job/1 @22
		3 gap expired 20-60 since=1 recovered
		4 started S2 @70
		4.1 completed S2 @70
		5 progress @80`
	for at, want := range map[string]string{
		"rv:21": "0 uncertain",
		"rv:30": "1 uncertain",
		"rv:59": "1 uncertain",
		"rv:70": "0 exact",
	} {
		s := timeline.NewState(parse(t, at), timeline.Options{})
		for _, e := range record(all) {
			s.Add(e)
		}
		if got := fmt.Sprint(s.Len(), " ", s.Scopes()[0].Certainty); got != want {
			t.Errorf("at %s: %s, want %s", at, got, want)
		}
	}
}

// Two claims of one run show that no snapshot follows a gap. A copy of the first claim does not: a
// snapshot may still follow.
func TestCopyOfAClaimDoesNotEndAGap(t *testing.T) {
	t.Parallel()
	s := timeline.NewState(parse(t, "6.3"), timeline.Options{})
	for _, e := range record(steady + `
		5 gap expired 40-60 since=4
		6 progress @70
		6.1 started S2 @75
		6.5 completed S2 @75
		7 progress @80
		8 progress @90`) {
		s.Add(e)
		s.Add(e)
	}
	if got := certainty.Worst(s.Scopes()); got != certainty.Uncertain {
		t.Errorf("%s, want uncertain until the end of the snapshot", got)
	}
}
