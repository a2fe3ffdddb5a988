package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestProgressOfABadPath cuts the watch of one resource, and later keeps back what the API server
// sends of another one. The progress says so. Meanwhile it keeps back what the API server sends of
// a third one, which has shown no bookmark. The agent finds that out from a list of metadata.
func TestProgressOfABadPath(t *testing.T) {
	slow(t)
	notRacing(t)
	// Not beside others: its limits are times of an idle machine.
	p := world.SharedPlane(t)
	g := world.StartGateway(t, p)
	o := observe(t, "bad-path", world.AgentConfig{Kubeconfig: g.Kubeconfig(t, p)})
	world.Pass(t.Context(), 4*time.Second)
	g.Hold("widgets", true)
	held := injected{why: oracle.InterruptedSilent, from: time.Now()}
	o.inject(t, oracle.InterruptedCut,
		func() { g.Cut("configmaps", true) }, 40*time.Second, func() { g.Cut("configmaps", false) }, "configmaps")
	// Only a watch that has shown a bookmark is known to be silent.
	world.Pass(t.Context(), time.Until(o.captured.Add(70*time.Second)))
	o.inject(t, oracle.InterruptedSilent,
		func() { g.Hold("secrets", true) }, 75*time.Second, func() { g.Hold("secrets", false) }, "secrets")
	o.awaitHealth(t, 20*time.Second, "stale", "held_back")
	o.awaitReport(t, "with an interruption of the widgets that is not over", func(rec *oracle.Record) bool {
		return slices.ContainsFunc(rec.Report.Entries, func(e oracle.Entry) bool {
			return e.Resource == oracle.Widgets &&
				slices.ContainsFunc(e.Interruptions, func(x oracle.Interruption) bool {
					return x.Why == oracle.InterruptedSilent && x.Until.IsZero()
				})
		})
	})
	// A watch of 30 s, whose end is another interruption, follows the proof after two minutes. The
	// agent gives it up after a minute. The next one lasts.
	world.Pass(t.Context(), time.Until(held.from.Add(190*time.Second)))
	held.until = time.Now()
	g.Hold("widgets", false)
	o.note(t, held, oracle.Widgets)
	o.awaitHealth(t, 50*time.Second, "ok", "")
	o.awaitLists(t, 12)
	o.judge(t)
}

// TestProgressOfAProcess stops the agent's process for a while, ends it, and kills it.
func TestProgressOfAProcess(t *testing.T) {
	slow(t)
	notRacing(t)
	// Not beside others: its limits are times of an idle machine.
	o := observe(t, "bad-process", world.AgentConfig{})
	world.Pass(t.Context(), 4*time.Second)
	signal := func(s syscall.Signal) {
		if err := o.Agent.Cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	o.inject(t, oracle.InterruptedStopped,
		func() { signal(syscall.SIGSTOP) }, 30*time.Second, func() { signal(syscall.SIGCONT) }, progressResources...)
	world.Pass(t.Context(), 10*time.Second)
	again := func() { o.Agent.Again(t) }
	o.inject(t, oracle.InterruptedStart, func() { o.StopAgent(t) }, 10*time.Second, again, progressResources...)
	started := time.Now()
	o.awaitReport(t, "one of the second run", func(rec *oracle.Record) bool {
		return rec.Time.After(started) && rec.Report.Number == 1
	})

	o.inject(t, oracle.InterruptedStart, func() { o.Agent.Crash() }, 10*time.Second, again, progressResources...)
	world.Pass(t.Context(), 12*time.Second)
	o.judge(t)
}

// TestProgressOfAClock sets the agent's wall clock back by 30 s.
func TestProgressOfAClock(t *testing.T) {
	slow(t)
	notRacing(t)
	// Not beside others: its limits are times of an idle machine.
	const step = 30 * time.Second
	shift := filepath.Join(t.TempDir(), "shift")
	o := observe(t, "bad-clock", world.AgentConfig{
		Binary: shiftedAgent(t), Env: []string{"KUBECDC_TEST_CLOCK=" + shift},
	})
	world.Pass(t.Context(), 8*time.Second)
	before := time.Now()
	if err := os.WriteFile(shift+".new", []byte("-"+step.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(shift+".new", shift); err != nil {
		t.Fatal(err)
	}
	set := time.Now()
	o.Clock = func(at time.Time) time.Time {
		if at.Before(set) {
			return at
		}
		return at.Add(-step)
	}
	// The agent reads its clock twice a second. Times between two readings are those before the
	// step.
	const reading = time.Second
	x := injected{why: oracle.InterruptedStepped, from: set.Add(reading - step), until: before.Add(-reading)}
	o.note(t, x, progressResources...)
	world.Pass(t.Context(), step+35*time.Second)
	o.judge(t)
}
