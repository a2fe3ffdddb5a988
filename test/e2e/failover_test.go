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

// leaderFault is something that takes the lead from an agent.
type leaderFault struct {
	name  string
	begin func(t testing.TB, e *election, leader *candidate)
	// end is called when another leads. The agent that led has been, or will be, told so.
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
			// It goes on when another leads, in the middle of whatever it was at.
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
			// From the API server alone, in turns: nothing is answered, or all is refused. The bus is there.
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
				if e.RNG.IntN(2) == 0 { // What was held is lost. Else it comes now, much too late.
					was.api.Cut()
				}
				was.api.Refuse(false)
				was.api.Hold(false)
				e.deposed(t, was)
			},
		},
		{
			// With much to tell: the bus is full, and has room again as soon as another leads.
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
			// Its watches go on, and there is always something to publish: nothing but the Lease tells it to stop.
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

// freeze stops the agent in its tracks: its connections stay open.
func (c *candidate) freeze(t testing.TB) { c.signal(t, syscall.SIGSTOP) }

// thaw lets it go on.
func (c *candidate) thaw(t testing.TB) { c.signal(t, syscall.SIGCONT) }

func (c *candidate) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := c.Cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s to the agent: %v", s, err)
	}
}

// failoverTold is what came of one fault, in so many rounds: for people, and as one line of JSON.
type failoverTold struct {
	Fault      string         `json:"fault"`
	Rounds     int            `json:"rounds"`
	Leaders    int            `json:"leaders"`
	Least      float64        `json:"leastSeconds"` // Without publishing, from one leader to the next.
	Median     float64        `json:"medianSeconds"`
	Worst      float64        `json:"worstSeconds"`
	Revisions  int            `json:"revisions"`
	Expected   int            `json:"expected"`
	Records    int            `json:"records"`
	Duplicates int            `json:"duplicates"` // Each with a known id.
	Late       int            `json:"late"`       // Of a leader that was not any more; each with a known id.
	InGaps     int            `json:"inGaps"`     // Records that are not there, and that gaps tell of: where an API server has lost history.
	Missing    int            `json:"missing"`
	Wrong      map[string]int `json:"wrong"` // By kind, all that should be none.
}

func (f *failoverTold) String() string {
	return fmt.Sprintf(`%s: %d rounds, %d leaders one after the other
  without publishing: median %.2f s, worst %.2f s, least %.2f s
  revisions %d, records expected %d, on the bus %d, in gaps %d, duplicates %d, late %d
  missing %d, out of order %d, breaks in the chain %d, other faults %v`,
		f.Fault, f.Rounds, f.Leaders, f.Median, f.Worst, f.Least, f.Revisions, f.Expected, f.Records, f.InGaps, f.Duplicates, f.Late,
		f.Missing, f.Wrong["order"], f.Wrong["chain"], f.Wrong)
}

// tooLong is without publishing. An agent is to take over within 10 s, which is measured and printed; a test on a busy
// machine fails behind twice that.
const tooLong = 20 * time.Second

// judgeTerms ends the writers, and judges all that is on the bus and what was remembered.
func (e *election) judgeTerms(t testing.TB, what string) (failoverTold, []oracle.Term) {
	t.Helper()
	e.stop()
	resources, selected := []string{"configmaps"}, []string{oracle.Widgets}
	got, faults := e.Conclude(t, 40*time.Second, nil, resources, selected)
	records := e.Stream.All()
	terms, more := oracle.JudgeEpochs(records, e.late)
	faults = slices.Concat(faults, more, e.judgeCheckpoints(t, terms))
	world.Report(t, e.Plane, e.Stream, faults)
	e.TellStory(t, faults, resources, selected)
	if len(e.Losses) == 0 {
		got.NoGaps(t)
		for scope, n := range snapshotCounts(records) {
			if n != 1 {
				t.Errorf("%d snapshots of %s, want one: history was there", n, scope)
			}
		}
	}

	told := failoverTold{
		Fault: what, Leaders: len(terms), Expected: got.Expected, Records: got.Records, Duplicates: got.Duplicates, InGaps: got.InGaps,
		Wrong: make(map[string]int),
	}
	for key, versions := range e.History.Of(append(resources, selected...)...) {
		if key.Namespace == e.namespace {
			told.Revisions += len(versions)
		}
	}
	for _, f := range faults {
		told.Wrong[f.Kind]++
	}
	told.Missing = told.Wrong["missing"]
	for _, term := range terms {
		told.Late += term.Late
	}
	if list := oracle.Silences(terms); len(list) > 0 {
		slices.Sort(list)
		told.Least, told.Median, told.Worst = list[0].Seconds(), list[len(list)/2].Seconds(), list[len(list)-1].Seconds()
		if worst := list[len(list)-1]; worst > tooLong+e.away {
			t.Errorf("%s without publishing", worst)
		}
	}
	return told, terms
}

// snapshotCounts is how many snapshots were begun of each scope.
func snapshotCounts(records []oracle.Record) map[string]int {
	counts := make(map[string]int)
	for _, b := range oracle.SnapshotsOf(records, 0) {
		counts[b.Text]++
	}
	return counts
}

// tell prints the outcome, for people and for machines.
func (f *failoverTold) tell(t testing.TB) {
	t.Helper()
	t.Log(f)
	line, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s\n", line)
}

// TestFailover takes the lead from one of two agents, again and again, while writers change objects, and then holds the stream
// against etcd's history: all is there, in order, also when who led comes back. Each fault has its own agents, Lease and
// bus, on one control plane.
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
				e.remembered(t)
				e.Pause(t, 0, 3*time.Second)
				epoch := e.epoch()
				at := time.Now()
				f.begin(t, e, leader)
				e.after(t, epoch)
				t.Logf("round %d of %d: another leads %s after the fault", i+1, rounds, time.Since(at).Round(10*time.Millisecond))
				e.Pause(t, 0, time.Second) // The next one is at work.
				f.end(t, e, leader)
			}
			told, _ := e.judgeTerms(t, f.name)
			told.Rounds = rounds
			if told.Leaders != rounds+1 {
				t.Errorf("%d leaders in %d rounds", told.Leaders, rounds)
			}
			told.tell(t)
		})
	}
}

// TestFailoverOfThree kills the leader of three, and the next one as soon as it writes: a second standby is as good.
func TestFailoverOfThree(t *testing.T) {
	slow(t)
	t.Parallel()
	e := newElection(t, world.SharedPlane(t), "failover-three")
	e.unlease(t) // As before the first start of all.
	e.begin(t, 3)
	for range 2 {
		epoch := e.epoch()
		e.leader(t).Crash()
		e.after(t, epoch)
	}
	e.leader(t)
	told, _ := e.judgeTerms(t, "killed, of three")
	told.Rounds = 2
	if told.Leaders != 3 {
		t.Errorf("%d leaders, want three", told.Leaders)
	}
	told.tell(t)
}
