package timeline_test

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func partition(n int) consume.Log { return consume.Log{Name: "topic", Partition: n} }

// inPartition adds a record to a partition.
func inPartition(s *timeline.State, n int, lines string) {
	for _, e := range record(lines) {
		e.Position = consume.Position{Log: partition(n), Next: 1}
		s.Add(e)
	}
}

const day = `
	0 begin @10 initial
	0 started S1 @10
	0.1 completed S1 @10
	1 progress @20
	2 progress @30
	3 progress @40`

// Retention removes the snapshot from one partition earlier than from another. That partition has
// objects that the others do not have.
func TestPartitionWithoutTheSnapshot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second string
		noted  bool
		want   certainty.Level
	}{
		"both have it":          {day, false, certainty.Exact},
		"only progress is left": {"2 progress @30\n3 progress @40", false, certainty.Unknown},
		"nothing is left":       {"", true, certainty.Unknown},
		"only the end of it is left": {
			"0.1 completed S1 @10\n2 progress @30\n3 progress @40", false, certainty.Unknown,
		},
		"it has not been read": {"", false, certainty.Exact},
		"a start, and no snapshot": {
			"0 begin @10 initial\n2 progress @30\n3 progress @40", false, certainty.Unknown,
		},
		"its snapshot is later than the moment": {
			"1 progress @20 scope=pods resource=pods\n4 started S2 @50\n4.1 completed S2 @50\n5 progress @60", false,
			certainty.Unknown,
		},
		"the scope ends, and is absent": {
			"2 progress @30\n3 progress @40 resource=nodes", false, certainty.Unknown,
		},
	} {
		s := timeline.NewState(timeline.At(minute("2.5")), timeline.Options{})
		inPartition(s, 0, day)
		inPartition(s, 1, c.second)
		if c.noted {
			s.NoteLog(partition(1))
		}
		if got := certainty.Worst(s.Scopes()); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A partition that lacks a scope does not matter after the scope has ended.
func TestPartitionWithoutAScopeThatHasEnded(t *testing.T) {
	t.Parallel()
	s := timeline.NewState(timeline.At(minute("2.5")), timeline.Options{})
	inPartition(s, 0, "0 begin @10 scope=pods/old\n1 end removed @20 scope=pods/old")
	for n := range 2 {
		inPartition(s, n, day)
		if !s.DoneIn(partition(n)) {
			t.Errorf("partition %d is not done", n)
		}
	}
	if got := certainty.Worst(s.Scopes()); got != certainty.Exact || len(s.Scopes()) != 2 {
		t.Errorf("%v, %d scopes", got, len(s.Scopes()))
	}
}

// A partition is done when its own progress has passed the moment, and it has each scope that
// another one has.
func TestDoneInAPartition(t *testing.T) {
	t.Parallel()
	s := timeline.NewState(timeline.At(minute("2.5")), timeline.Options{})
	inPartition(s, 0, day+"\n0 begin @10 initial resource=nodes\n3 progress @40 resource=nodes")
	if !s.DoneIn(partition(0)) {
		t.Error("the first partition is not done after its progress")
	}
	if s.DoneIn(partition(1)) {
		t.Error("a partition is done, and nothing of it was read")
	}
	inPartition(s, 1, day)
	if s.DoneIn(partition(1)) {
		t.Error("the second partition is done without a scope that the first one has")
	}
	inPartition(s, 1, "0 begin @10 initial resource=nodes\n2.4 progress @40 resource=nodes")
	if s.DoneIn(partition(1)) {
		t.Error("the second partition is done before the progress of all scopes")
	}
	inPartition(s, 1,
		"3.2 progress @40 resource=nodes\n3.3 progress @40 resource=nodes\n3.4 progress @40 resource=nodes")
	if !s.DoneIn(partition(1)) {
		t.Error("the second partition is not done")
	}
}

// A partition may have only a part of a scope that another partition has, in the snapshot of a
// larger scope. Its record of that scope is still missing.
func TestPartitionWithAPartOfAScope(t *testing.T) {
	t.Parallel()
	const pods = `
		0 begin @10 initial
		0 started S1 @10
		0.1 completed S1 @10
		1 progress @20 scope=pods
		2 progress @30 scope=pods
		3 progress @40 scope=pods`
	s := timeline.NewState(timeline.At(minute("2.5")), timeline.Options{})
	inPartition(s, 0, pods+"\n0 begin @10 scope=pods/shop\n3 progress @40 scope=pods/shop")
	inPartition(s, 1, pods)
	inPartition(s, 1, "0 started S2 @10 scope=pods/shop")
	if s.DoneIn(partition(1)) {
		t.Error("the partition is done before the record of the scope")
	}
	inPartition(s, 1, "0 begin @10 scope=pods/shop\n3 progress @40 scope=pods/shop")
	if !s.DoneIn(partition(1)) {
		t.Error("the partition is not done after the record of the scope")
	}
}

// A progress is about scopes whose starts were not read.
func TestScopesWithoutNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record string
		want   bool
	}{
		"started":                 {day, false},
		"not started":             {"1 progress @20", true},
		"only its snapshot":       {"0 started S1 @10\n1 progress @20", false},
		"started later, and then": {"1 progress @20\n2 started S1 @10\n3 progress @20", false},
		"named":                   {"1 progress @20 scope=pods/shop", false},
	} {
		f := timeline.NewFold(timeline.Moment{}, timeline.Options{})
		for _, e := range record(c.record) {
			f.Add(e)
		}
		if got := f.Unnamed(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// When a topic grows, the events of an object go to another partition. The next snapshot reads the
// object there, and sweeps it in the old partition.
func TestObjectThatMovesToAnotherPartition(t *testing.T) {
	t.Parallel()
	const (
		before   = "0 begin @10 initial\n0 started S1 @10\n0 r web/1 @5 S1\n0.1 completed S1 @10\n1 progress @20\n"
		oldAfter = "2 started S2 @30\n2.2 completed S2 @30\n3 progress @40\n4 progress @50"
		newAfter = "2 started S2 @30\n2.1 r web/1 @25 S2\n2.2 completed S2 @30\n3 progress @40\n4 progress @50"
		gone     = "1.5 u web/1 @25 was=5\n2 started S2 @30\n2.2 completed S2 @30\n3 progress @40\n4 progress @50"
	)
	for name, c := range map[string]struct {
		order []int
		after string // in the new partition
		want  int
	}{
		"the new partition is read first": {[]int{1, 0}, newAfter, 1},
		"the old partition is read first": {[]int{0, 1}, newAfter, 1},
		"it has gone since":               {[]int{1, 0}, gone, 0},
	} {
		s := timeline.NewState(timeline.At(minute("3.5")), timeline.Options{})
		inPartition(s, 0, before)
		for _, p := range c.order {
			inPartition(s, p, []string{oldAfter, c.after}[p])
		}
		if got := len(s.Objects()); got != c.want {
			t.Errorf("%s: %d objects, want %d", name, got, c.want)
		}
	}
}

// When an object ends in the new partition, the old one still has it. The next snapshot sweeps it
// in the old partition. That is not a second end.
func TestObjectThatEndsAfterItHasMoved(t *testing.T) {
	t.Parallel()
	const before = "0 begin @10 initial\n0 started S1 @10\n0 r web/1 @5 S1\n0.1 completed S1 @10\n"
	for name, c := range map[string]struct {
		end   string // in the new partition
		order []int
		want  []string
	}{
		"deleted": {"1.5 u web/1 @25 was=5\n1.6 d web/1 @26\n", []int{1, 0}, []string{"r 5", "u 25", "d 26"}},
		"left":    {"1.5 u web/1 @25 was=5\n1.6 l web/1 @26\n", []int{1, 0}, []string{"r 5", "u 25", "l 26"}},
		"swept":   {"1.5 u web/1 @25 was=5\n", []int{1, 0}, []string{"r 5", "u 25", "d 30"}},
		"swept, and the old partition is first": {"1.5 u web/1 @25 was=5\n", []int{0, 1}, []string{
			"r 5", "u 25", "d 30",
		}},
		"it has another name's place": {"1.5 u web/1 @25 was=5\n1.6 c web/2 @27\n", []int{1, 0}, []string{
			"r 5", "u 25", "d 27", "c 27", "d 30",
		}},
		"it comes back": {"1.5 u web/1 @25 was=5\n1.6 l web/1 @26\n1.7 e web/1 @28\n", []int{
			1, 0,
		}, []string{"r 5", "u 25", "l 26", "e 28", "d 30"}},
	} {
		f := timeline.NewFold(timeline.At(minute("9")), timeline.Options{})
		var got []string
		add := func(n int, lines string) {
			for _, e := range record(lines) {
				e.Position = consume.Position{Log: partition(n), Next: 1}
				for _, v := range f.Add(e) {
					got = append(got, string(v.Op)+" "+v.ResourceVersion)
				}
			}
		}
		add(0, before)
		add(1, c.end)
		for _, n := range []string{"S2 @30", "S3 @40"} {
			for _, p := range c.order {
				add(p, "2 started "+n+"\n2.2 completed "+n)
			}
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// One agent observes all pods, and another one those of a namespace. A partition has only a later
// snapshot of the namespace, which looks like a part of all pods. Another partition has its start.
func TestPartitionWithoutTheStartOfAScope(t *testing.T) {
	t.Parallel()
	const (
		whole = "0 begin @10 initial writer=v\n0 started S1 @10 writer=v\n0.1 completed S1 @10 writer=v\n1 progress @20 writer=v\n3 progress @40 writer=v\n"
		shop  = "0 begin @10 initial scope=pods/shop\n0 started S2 @10 scope=pods/shop\n0.1 completed S2 @10 scope=pods/shop\n"
		later = "4 started S3 @50 scope=pods/shop\n4.1 completed S3 @50 scope=pods/shop\n5 progress @60\n6 progress @60 writer=v"
	)
	s := timeline.NewState(timeline.At(minute("2.5")), timeline.Options{})
	inPartition(s, 0, whole+shop+"1 progress @20\n3 progress @40\n"+later)
	inPartition(s, 1, whole+later)
	for _, scope := range s.Scopes() {
		want := certainty.Exact
		if scope.Name == "pods/shop" {
			want = certainty.Unknown
		}
		if scope.Certainty != want {
			t.Errorf("%s: %v, want %v", scope.Name, scope.Certainty, want)
		}
	}
}
