package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// shiftedAgent builds an agent whose wall clock a file shifts, which the environment variable
// KUBECDC_TEST_CLOCK names.
func shiftedAgent(t *testing.T) string {
	t.Helper()
	if os.Getenv("KUBECDC_E2E_AGENT") != "" {
		t.Skip("the clock of a given agent cannot be set")
	}
	const flag = " -ldflags=-X=github.com/kubecdc/kubecdc/internal/clock.shiftVariable=KUBECDC_TEST_CLOCK"
	path, err := build.AgentIn(t.Context(), t.TempDir(), "GOFLAGS="+os.Getenv("GOFLAGS")+flag)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTheClockIsSet sets the wall clock of an agent back by 30 s, and forward again. The times of
// its events never go back, and it reports each step within a second.
func TestTheClockIsSet(t *testing.T) {
	p := world.SharedPlane(t)
	const namespace, objects = "clock-is-set", 3
	p.NewNamespace(t, namespace)
	bus := world.StartBus(t)
	shift := filepath.Join(t.TempDir(), "shift")
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus: bus, Binary: shiftedAgent(t), Env: []string{"KUBECDC_TEST_CLOCK=" + shift}, Watch: fmt.Sprintf(`
  - resources: [configmaps]
    namespaces: [%s]
`, namespace),
	})
	s := world.ReadStream(t, bus, p.Reader())
	a.Ready(t)
	p.MakeConfigMaps(t, namespace, "before", objects)
	for n, by := range []string{"-30s", "0s"} {
		if err := os.WriteFile(shift+".new", []byte(by), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(shift+".new", shift); err != nil {
			t.Fatal(err)
		}
		set := time.Now()
		err := wait.For(t.Context(), 10*time.Second, func() error {
			text, err := a.Get(context.WithoutCancel(t.Context()), "/metrics")
			if err != nil {
				return err
			}
			if want := fmt.Sprintf(`kubecdc_clock_interruptions_total{why="stepped"} %d`, n+1); !strings.Contains(text,
				want) {
				return fmt.Errorf("no %s", want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("set to %s: noticed after %v", by, time.Since(set))
		phase := "after-" + strings.Trim(by, "-")
		p.MakeConfigMaps(t, namespace, phase, objects)
		wait.Eventually(t, time.Minute, func() error { // The next step must not come before the agent observes them.
			n := 0
			for _, r := range s.All() {
				if r.Key.Namespace == namespace && r.Op != "" && strings.HasPrefix(r.Key.Name, phase) {
					n++
				}
			}
			if n < objects {
				return fmt.Errorf("%d of %d objects of phase %s are on the bus", n, objects, phase)
			}
			return nil
		})
	}
	world.Check(t, p, s, world.ViewOf(s.Completed(t, "configmaps")), "configmaps")
	spans := map[string]*[2]time.Time{} // The first and the last time, by the objects of a phase.
	for _, r := range s.All() {
		if r.Key.Namespace != namespace || r.Op == "" {
			continue
		}
		phase := r.Key.Name[:strings.LastIndex(r.Key.Name, "-")]
		if spans[phase] == nil {
			spans[phase] = &[2]time.Time{r.Time, r.Time}
		}
		if r.Time.Before(spans[phase][0]) {
			spans[phase][0] = r.Time
		}
		if r.Time.After(spans[phase][1]) {
			spans[phase][1] = r.Time
		}
	}
	before := spans["before"]
	back := spans["after-30s"]
	forward := spans["after-0s"]
	if before == nil || back == nil || forward == nil {
		t.Fatalf("records of the phases are missing: %v", spans)
	}
	if back[0].Before(before[1]) || forward[0].Before(back[1]) {
		t.Errorf("the times go back: before %v, after the step back %v, after the step forward %v", before, back,
			forward)
	}
	if !back[1].Equal(back[0]) {
		t.Errorf("after the step back the times do not stand still: %v", back)
	}
}
