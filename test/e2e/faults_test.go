package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// faultsOutcome is the outcome of TestFaults as one line of JSON.
type faultsOutcome struct {
	Seed       uint64         `json:"seed"`
	Faults     int            `json:"faults"`
	ByKind     map[string]int `json:"byKind"`
	Seconds    int            `json:"seconds"`
	Revisions  int            `json:"revisions"`
	Expected   int            `json:"expected"`
	Records    int            `json:"records"`
	Duplicates int            `json:"duplicates"`
	Snapshots  int            `json:"snapshots"`
	Gaps       int            `json:"gaps"`
	Recovered  int            `json:"gapsRecovered"`
	Inferred   int            `json:"inferred"`
	Swept      int            `json:"swept"`
	InGaps     int            `json:"inGaps"`
	Wrong      map[string]int `json:"wrong"` // By kind; all should be zero.
	Missing    int            `json:"missing"`
}

// TestFaults injects one fault after the other into the agent and the processes that it talks to,
// while writers change objects. It then compares the stream with etcd's history. Each change that
// the history still has must be on the bus once, in order and unaltered. A gap event must cover the
// others.
//
//	FAULTS=200 FAULT_SEED=7 go test -v -run TestFaults ./e2e
func TestFaults(t *testing.T) {
	t.Parallel()
	testFaults(t, world.NewStage)
}

// TestKafkaFaults is TestFaults with Kafka.
func TestKafkaFaults(t *testing.T) {
	slow(t)
	kafka.Require(t)
	t.Parallel()
	testFaults(t, world.NewKafkaStage)
}

func testFaults(t *testing.T, newStage func(testing.TB, int, *rand.Rand) *world.Stage) {
	t.Helper()
	const objects = 1200 // Three pages of ConfigMaps.
	n := world.EnvUint(t, "FAULTS", size[uint64](6, 12, 12))
	luck := uint64(time.Now().UnixNano() % 1_000_000)
	if testing.Short() { // The fast tier has the same faults in each run.
		luck = 1
	}
	seed := world.EnvUint(t, "FAULT_SEED", luck)
	t.Logf("FAULT_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	schedule := draw(allFaults(), int(n), rng)
	resources, selected := []string{"configmaps", "secrets"}, []string{oracle.Widgets}
	namespaces := []string{"faults-a", "faults-b"}

	var faults []oracle.Fault
	t.Cleanup(func() { // last: after the agent's log, where the end of a long output shows it
		for _, f := range faults[:min(5, len(faults))] {
			t.Logf("%.600s", f)
		}
	})
	s := newStage(t, 2, rng)
	for _, ns := range namespaces {
		s.NewNamespace(t, ns)
	}
	s.MakeMany(t, namespaces[0], "still", objects)
	sw := &world.SteadyWriters{Every: 40 * time.Millisecond}
	for i := range s.APIServers() {
		a, err := world.NewAPI(s.ConfigFor(i, controlplane.Admin))
		if err != nil {
			t.Fatal(err)
		}
		sw.APIs = append(sw.APIs, a)
	}
	begin := time.Now()
	var steps []func(*world.Writers) func(context.Context) error
	for _, ns := range namespaces {
		steps = append(steps,
			func(ws *world.Writers) func(context.Context) error { return ws.Writer("cm", ns, 25).ConfigMaps },
			func(ws *world.Writers) func(context.Context) error { return ws.Writer("secret", ns, 15).Secrets },
			func(ws *world.Writers) func(context.Context) error { return ws.Writer("w", ns, 25).Labelled },
		)
	}
	stopWriting := sw.Run(t, steps...)

	// The first snapshot is slowed down, so that the agent is killed during it.
	s.BusProxy.Delay(5 * time.Millisecond)
	s.Begin(t, world.AgentConfig{Watch: `
  - resources: [configmaps, secrets]
  - resources: [` + oracle.Widgets + `]
    labelSelector: team=payments
`, Extra: "queue: {events: 512}"})
	s.Stream.Started(t, "configmaps")
	s.Agent.Crash()
	s.BusProxy.Delay(0)
	s.Agent.Again(t)

	outcome := faultsOutcome{
		Seed:   seed,
		Faults: len(schedule),
		ByKind: make(map[string]int),
		Wrong:  make(map[string]int),
	}
	for i, k := range schedule {
		s.Pause(t, 100*time.Millisecond, 1200*time.Millisecond)
		t.Logf("fault %d of %d at %s: %s", i+1, len(schedule), time.Since(begin).Round(time.Second), k.name)
		k.do(t, s)
		outcome.ByKind[k.name]++
		if s.Agent.Ended() {
			t.Fatalf("the agent has ended by itself: %v", s.Agent.Err)
		}
	}
	stopWriting()
	var got oracle.Verdict
	got, faults = s.Conclude(t, nil, resources, selected)
	if s.Agent.Ended() {
		t.Errorf("the agent has ended by itself: %v", s.Agent.Err)
	}
	world.Report(t, s.Plane, s.Stream, faults)
	s.TellStory(t, faults, resources, selected)

	outcome.Seconds = int(time.Since(begin).Seconds())
	outcome.Revisions = s.History.Count(append(resources, selected...)...)
	outcome.Expected = got.Expected
	outcome.Records = got.Records
	outcome.Duplicates = got.Duplicates
	outcome.Inferred = got.Inferred
	outcome.Swept = got.Swept
	outcome.InGaps = got.InGaps
	outcome.Gaps = len(got.Gaps)
	for i := range got.Gaps {
		if got.Gaps[i].Recovered {
			outcome.Recovered++
		}
	}
	outcome.Snapshots = len(oracle.SnapshotsOf(s.Stream.All(), 0))
	for _, f := range faults {
		outcome.Wrong[f.Kind]++
	}
	outcome.Missing = outcome.Wrong["missing"]
	outcome.report(t, sw)
}

// report prints the outcome as a table and as one line of JSON.
func (f *faultsOutcome) report(t testing.TB, sw *world.SteadyWriters) {
	t.Helper()
	kinds := slices.SortedFunc(maps.Keys(f.ByKind), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.ByKind[b], f.ByKind[a]), cmp.Compare(a, b))
	})
	table := ""
	for _, kind := range kinds {
		table += fmt.Sprintf("  %4d  %s\n", f.ByKind[kind], kind)
	}
	t.Logf(`seed %d: %d faults in %d s
%s  writers: %d steps, %d of them without an answer
  revisions %d, records expected %d, on the bus %d, duplicates %d
  snapshots %d, gaps %d (recovered %d), inferred %d, swept %d, in gaps %d
  missing %d, out of order %d, breaks in the chain %d, contents that differ %d, other faults %d`,
		f.Seed, f.Faults, f.Seconds, table, sw.Steps.Load(), sw.Failed.Load(),
		f.Revisions, f.Expected, f.Records, f.Duplicates,
		f.Snapshots, f.Gaps, f.Recovered, f.Inferred, f.Swept, f.InGaps,
		f.Missing, f.Wrong["order"], f.Wrong["chain"], f.Wrong["before"]+f.Wrong["after"], f.others())
	line, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s\n", line)
}

// others returns the number of faults that the table does not name.
func (f *faultsOutcome) others() int {
	n := 0
	for kind, count := range f.Wrong {
		if !slices.Contains([]string{"missing", "order", "chain", "before", "after"}, kind) {
			n += count
		}
	}
	return n
}
