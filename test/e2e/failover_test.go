package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// leaderFault is a fault that makes an agent lose the lead.
type leaderFault struct {
	name  string
	begin func(t testing.TB, e *election, leader *candidate)
	// end is called when another agent leads. The previous leader has detected that, or will.
	end func(t testing.TB, e *election, was *candidate)
}

func leaderFaults() []leaderFault {
	return []leaderFault{
		{
			name:  "killed",
			begin: func(_ testing.TB, _ *election, leader *candidate) { leader.Crash() },
			end: func(t testing.TB, e *election, was *candidate) {
				was.Again(t)
				e.standsBy(t, was)
			},
		},
		{
			// The process resumes when another agent leads, in the middle of its work.
			name: "paused",
			begin: func(t testing.TB, e *election, leader *candidate) {
				epoch := e.epoch()
				leader.freeze(t)
				e.late[epoch] = e.Now(t)
			},
			end: func(t testing.TB, e *election, was *candidate) {
				was.thaw(t)
				e.deposed(t, was)
			},
		},
		{
			// The leader cannot reach the API server, which either does not answer or refuses
			// connections. The bus is reachable.
			name: "partitioned",
			begin: func(_ testing.TB, e *election, leader *candidate) {
				if e.RNG.IntN(2) == 0 {
					leader.api.Refuse(true)
					leader.api.Cut()
				} else {
					leader.api.Hold(true)
				}
			},
			end: func(t testing.TB, e *election, was *candidate) {
				if e.RNG.IntN(2) == 0 { // The held traffic is lost. Otherwise it is delivered now, far too late.
					was.api.Cut()
				}
				was.api.Refuse(false)
				was.api.Hold(false)
				e.deposed(t, was)
			},
		},
		{
			// With a backlog: the bus is full, and has room again as soon as another agent leads.
			name: "backlogged",
			begin: func(t testing.TB, e *election, leader *candidate) {
				e.fill(t)
				world.Pass(t.Context(), time.Second)
				leader.api.Hold(true)
				e.leaderBut(t, leader)
				e.drain(t)
			},
			end: func(t testing.TB, e *election, was *candidate) {
				was.api.Cut()
				was.api.Hold(false)
				e.deposed(t, was)
			},
		},
		{
			// Its watches continue, and it always has records to publish: only the Lease makes it
			// stop.
			name: "refused",
			begin: func(t testing.TB, e *election, leader *candidate) {
				leader.heal = e.refuse(t, e.holder(t))
			},
			end: func(t testing.TB, e *election, was *candidate) {
				e.deposed(t, was)
				was.heal()
			},
		},
	}
}

// freeze suspends the agent: its connections stay open.
func (c *candidate) freeze(t testing.TB) { c.signal(t, syscall.SIGSTOP) }

// thaw resumes the agent.
func (c *candidate) thaw(t testing.TB) { c.signal(t, syscall.SIGCONT) }

func (c *candidate) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := c.Cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s to the agent: %v", s, err)
	}
}

// failoverOutcome is the outcome of one fault over all rounds, printed as text and as one line of
// JSON.
type failoverOutcome struct {
	Fault      string  `json:"fault"`
	Rounds     int     `json:"rounds"`
	Leaders    int     `json:"leaders"`
	Least      float64 `json:"leastSeconds"` // Time without publishing, from one leader to the next.
	Median     float64 `json:"medianSeconds"`
	Worst      float64 `json:"worstSeconds"`
	Revisions  int     `json:"revisions"`
	Expected   int     `json:"expected"`
	Records    int     `json:"records"`
	Duplicates int     `json:"duplicates"` // Each with a known id.
	Late       int     `json:"late"`       // From a leader that was deposed; each with a known id.
	// Missing records that gaps cover, because an API server has lost history.
	InGaps  int            `json:"inGaps"`
	Missing int            `json:"missing"`
	Wrong   map[string]int `json:"wrong"` // By kind; all should be zero.
}

func (f *failoverOutcome) String() string {
	return fmt.Sprintf(`%s: %d rounds, %d leaders one after the other
  without publishing: median %.2f s, worst %.2f s, least %.2f s
  revisions %d, records expected %d, on the bus %d, in gaps %d, duplicates %d, late %d
  missing %d, out of order %d, breaks in the chain %d, other faults %v`,
		f.Fault, f.Rounds, f.Leaders, f.Median, f.Worst, f.Least, f.Revisions, f.Expected, f.Records, f.InGaps,
		f.Duplicates, f.Late,
		f.Missing, f.Wrong["order"], f.Wrong["chain"], f.Wrong)
}

// tooLong limits the time without publishing. An agent should take over within 10 s, which is
// measured and printed. On a busy machine a test fails only after twice that.
const tooLong = 20 * time.Second

// judgeTerms stops the writers, and judges all records on the bus and all saved checkpoints.
func (e *election) judgeTerms(t testing.TB, what string) (failoverOutcome, []oracle.Term) {
	t.Helper()
	e.stop()
	resources, selected := []string{"configmaps"}, []string{oracle.Widgets}
	got, faults := e.Conclude(t, nil, resources, selected)
	records := e.Stream.All()
	terms, more := oracle.JudgeEpochs(records, e.late)
	faults = slices.Concat(faults, more, e.judgeCheckpoints(t, terms))
	world.Report(t, e.Plane, e.Stream, faults)
	e.TellStory(t, faults, resources, selected)
	if len(e.Losses) == 0 {
		got.NoGaps(t)
		for scope, n := range snapshotCounts(records) {
			if n != 1 {
				oracle.Fail(t, "%d snapshots of %s, want one: history was there", n, scope)
			}
		}
	}

	outcome := failoverOutcome{
		Fault:      what,
		Leaders:    len(terms),
		Expected:   got.Expected,
		Records:    got.Records,
		Duplicates: got.Duplicates,
		InGaps:     got.InGaps,
		Wrong:      make(map[string]int),
	}
	for key, versions := range e.History.Of(append(resources, selected...)...) {
		if key.Namespace == e.namespace {
			outcome.Revisions += len(versions)
		}
	}
	for _, f := range faults {
		outcome.Wrong[f.Kind]++
	}
	outcome.Missing = outcome.Wrong["missing"]
	for _, term := range terms {
		outcome.Late += term.Late
	}
	if list := oracle.Silences(terms); len(list) > 0 {
		slices.Sort(list)
		outcome.Least = list[0].Seconds()
		outcome.Median = list[len(list)/2].Seconds()
		outcome.Worst = list[len(list)-1].Seconds()
		if worst := list[len(list)-1]; worst > tooLong+e.away {
			t.Errorf("%s without publishing", worst)
		}
	}
	return outcome, terms
}

// snapshotCounts returns how many snapshots of each scope were started.
func snapshotCounts(records []oracle.Record) map[string]int {
	counts := make(map[string]int)
	for _, b := range oracle.SnapshotsOf(records, 0) {
		counts[b.Text]++
	}
	return counts
}

// report prints the outcome as text and as one line of JSON.
func (f *failoverOutcome) report(t testing.TB) {
	t.Helper()
	t.Log(f)
	line, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s\n", line)
}

// TestFailover takes the lead from one of two agents, again and again, while writers change
// objects, and then compares the stream with etcd's history. All records must be there, in order,
// even when the previous leader comes back. Each fault has its own agents, Lease and bus, on one
// control plane.
//
//	FAILOVERS=20 go test -v -run TestFailover -parallel 1 ./e2e
func TestFailover(t *testing.T) {
	t.Parallel()
	rounds := int(world.EnvUint(t, "FAILOVERS", size[uint64](1, 2, 2)))
	p := world.SharedPlane(t)
	for _, f := range leaderFaults() {
		t.Run(f.name, func(t *testing.T) {
			if f.name != "killed" {
				slow(t)
			}
			t.Parallel() // It mostly waits.
			e := newElection(t, p, "failover-"+f.name)
			e.begin(t, 2)
			for i := range rounds {
				leader := e.leader(t)
				e.checkpointed(t)
				e.Pause(t, 0, 3*time.Second)
				epoch := e.epoch()
				at := time.Now()
				f.begin(t, e, leader)
				e.after(t, epoch)
				t.Logf("round %d of %d: another leads %s after the fault", i+1, rounds,
					time.Since(at).Round(10*time.Millisecond))
				e.Pause(t, 0, time.Second) // The new leader is at work.
				f.end(t, e, leader)
			}
			outcome, _ := e.judgeTerms(t, f.name)
			outcome.Rounds = rounds
			if outcome.Leaders != rounds+1 {
				t.Errorf("%d leaders in %d rounds", outcome.Leaders, rounds)
			}
			outcome.report(t)
		})
	}
}

// TestFailoverOfThree kills the leader of three agents, and the next one as soon as it writes: the
// second standby must take over as well.
func TestFailoverOfThree(t *testing.T) {
	slow(t)
	t.Parallel()
	e := newElection(t, world.SharedPlane(t), "failover-three")
	e.unlease(t) // As before the very first start.
	e.begin(t, 3)
	for range 2 {
		epoch := e.epoch()
		e.leader(t).Crash()
		e.after(t, epoch)
	}
	e.leader(t)
	outcome, _ := e.judgeTerms(t, "killed, of three")
	outcome.Rounds = 2
	if outcome.Leaders != 3 {
		t.Errorf("%d leaders, want three", outcome.Leaders)
	}
	outcome.report(t)
}
