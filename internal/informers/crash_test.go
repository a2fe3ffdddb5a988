package informers_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// TestCrashes plays each script once, and counts its crash points: the moments before and after
// each record, acknowledgement and save of the checkpoint. For a crash point it plays the script
// again, kills the agent there, starts another one from the last save, and judges the record.
//
// A few points of each script are drawn. CRASHES=all takes all of them, CRASHES=17 takes one.
// CRASH_SEED decides which points are drawn, and the order and times of records, acknowledgements
// and answers. One seed gives nearly the same schedule each time: goroutines may still run in
// another order.
func TestCrashes(t *testing.T) {
	which, seed := crashesOf(t)
	for _, s := range scripts() {
		t.Run(s.name, func(t *testing.T) {
			for _, on := range []busKind{jetStream, otherBus} {
				for way, initial := range map[string]bool{"lists": false, "initial events": true} {
					t.Run(string(on)+"/"+way, func(t *testing.T) {
						t.Parallel()
						enumerate(t, &plan{script: s, bus: on, initial: initial, seed: seed}, which)
					})
				}
			}
		})
	}
}

// crashesOf returns which crash points to take, and the seed.
func crashesOf(t *testing.T) (which string, seed uint64) {
	t.Helper()
	which, seed = os.Getenv("CRASHES"), 1
	if which == "all" {
		seed = rand.Uint64N(1_000_000)
	}
	if text := os.Getenv("CRASH_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CRASH_SEED=%d", seed)
	return which, seed
}

// busKind decides what a start can ask the bus for.
type busKind string

const (
	jetStream busKind = "JetStream"
	otherBus  busKind = "another bus"
)

// plan is how a script is played.
type plan struct {
	script  *script
	bus     busKind
	initial bool // watches may begin with the existing objects
	seed    uint64
	at      int // the crash point at which the agent is killed; 0: it is not
	after   aftermath
}

// aftermath is what follows the kill.
type aftermath struct {
	rest   bool   // the rest of the script; otherwise nothing happens any more
	slow   string // "API server", "bus" or ""
	flight bool   // the bus still gets the first delta of each key
}

func (a aftermath) String() string {
	text := "the script ends"
	if a.rest {
		text = "the script continues"
	}
	if a.slow != "" {
		text += ", the " + a.slow + " is slow"
	}
	if a.flight {
		text += ", what was in flight arrives"
	}
	return text
}

func aftermaths() []aftermath {
	return []aftermath{{}, {slow: "API server", flight: true}, {slow: "bus"}, {rest: true}}
}

// enumerate plays a script without a kill, and then with a kill at each of the chosen crash points.
func enumerate(t *testing.T, p *plan, which string) {
	uncrashed := p.play(t)
	p.report(t, uncrashed)
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.script.name))
	rng := rand.New(rand.NewPCG(p.seed, h.Sum64()))
	points, sum := uncrashed.choose(t, rng, which), tally{}
	for _, at := range points {
		all := aftermaths()
		if which == "" {
			all = all[rng.IntN(len(all)):][:1]
		}
		for _, after := range all {
			crashed := *p
			crashed.at, crashed.after = at, after
			sum.add(t, &crashed, crashed.play(t))
		}
	}
	t.Logf("%d crash points, %d of them taken: %d runs, %d failed, %d excused, %d without a kill",
		len(uncrashed.points), len(points), sum.runs, len(sum.failed), sum.excused, sum.missed)
	if len(sum.failed) > 0 {
		t.Errorf("%d of %d runs failed:\n  %s", len(sum.failed), sum.runs, strings.Join(sum.failed, "\n  "))
	}
}

// choose returns the numbers of the crash points to take. A few are drawn: half of them right
// before a save, where a kill loses most.
func (o *outcome) choose(t *testing.T, rng *rand.Rand, which string) (points []int) {
	t.Helper()
	var saves, others []int
	for n, name := range o.points {
		points = append(points, n+1)
		if name == beforeSave {
			saves = append(saves, n+1)
		} else {
			others = append(others, n+1)
		}
	}
	switch which {
	case "":
	case "all":
		return points
	default:
		at, err := strconv.Atoi(which)
		if err != nil {
			t.Fatal(err)
		}
		return []int{at}
	}
	drawn := 8
	if testing.Short() {
		drawn = 2
	}
	for _, all := range [][]int{saves, others} {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	saves = saves[:min(drawn/2, len(saves))]
	return append(saves, others[:min(drawn-len(saves), len(others))]...)
}

// shownFailures is how many failures of a script are shown with the record.
const shownFailures = 2

// tally counts the runs of a script.
type tally struct {
	runs, excused, missed int
	failed                []string
}

func (y *tally) add(t *testing.T, p *plan, r *outcome) {
	t.Helper()
	y.runs++
	switch {
	case len(r.problems) > 0:
		y.failed = append(y.failed, fmt.Sprintf("%s: %s", p.kill(r), r.problems[0]))
		if len(y.failed) <= shownFailures {
			p.report(t, r)
		}
	case r.excused != "":
		y.excused++
	case r.where == "": // the order was another one, and the point was not reached
		y.missed++
	}
}

// kill describes the kill.
func (p *plan) kill(r *outcome) string {
	if r.where == "" {
		return "not killed"
	}
	return fmt.Sprintf("killed at point %d, %s; then %s", p.at, r.where, p.after)
}

// report fails the test if there are problems, and shows how to play the same again.
func (p *plan) report(t *testing.T, r *outcome) {
	t.Helper()
	if len(r.problems) == 0 {
		return
	}
	t.Errorf(
		"VERDICT: script %q on %s, seed %d, %s:\n  %s\nagain: CRASH_SEED=%d CRASHES=%d go test -count=1 -run '^%s$' ./internal/informers\n%s",
		p.script.name, p.bus, p.seed, p.kill(r), strings.Join(r.problems, "\n  "),
		p.seed, p.at, strings.ReplaceAll(t.Name(), "/", "$/^"), r.notes)
}

// outcome is the result of playing a script.
type outcome struct {
	points   []string // names of those that were reached, if there was no kill
	where    string   // the crash point of the kill; "": there was none
	problems []string
	excused  exception // an exception that leaves nothing to judge; "": none
	notes    string
}

// play plays the script in a bubble of its own.
func (p *plan) play(t *testing.T) *outcome {
	out := new(outcome)
	synctest.Test(t, func(t *testing.T) {
		c := newCrash(t, p)
		defer c.close()
		defer func() {
			switch failure := recover().(type) {
			case nil:
			case wrong:
				out.problems = append(out.problems, string(failure))
			default:
				panic(failure)
			}
			if t.Failed() {
				out.problems = append(out.problems, "the test has failed")
			}
			c.conclude(out)
		}()
		c.plays()
		out.problems = c.judges()
	})
	return out
}
