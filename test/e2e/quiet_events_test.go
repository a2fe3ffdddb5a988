package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// settledWithin is the longest time until answers about a quiet resource without bookmarks are
// exact: its watch lasts up to ten minutes, and progress comes each minute.
const settledWithin = 13 * time.Minute

// TestQuietEventsAreSettled asks for Events that do not change, while other objects do. The API
// server sends no bookmarks for Events. Answers about a moment, by version and by time, become
// exact nevertheless. The agent then resumes where it was settled.
func TestQuietEventsAreSettled(t *testing.T) {
	onlyLong(t, "a quarter of an hour")
	t.Parallel()
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	const namespace, events = "quiet", 3
	p.NewNamespace(t, namespace)
	path := world.Collection("events", namespace)
	for n := range events {
		_, err := p.API.Create(t.Context(), path, obj{
			"apiVersion":     "v1",
			"kind":           "Event",
			"metadata":       world.Meta(fmt.Sprint("event-", n)),
			"involvedObject": obj{"namespace": namespace},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: world.WatchConfigMaps(namespace) + `
  - resources: [events]
    namespaces: [quiet]
`})
	s := world.ReadStream(t, bus, p.Reader())
	a.Ready(t)
	s.Completed(t, "events")
	writes := 0
	write := func() {
		p.MakeConfigMaps(t, namespace, fmt.Sprint("cm-", writes), 1)
		writes++
	}
	for range 5 {
		write()
		world.Pass(t.Context(), time.Second)
	}
	byVersion, byTime := fmt.Sprint("rv:", p.Now(t)), stamp(time.Now())
	write()
	for _, at := range []string{byVersion, byTime} {
		if got := ask(t, "events", "-n", namespace, "--at", at, "--bus", bus.URL); got.Kubecdc.Certainty != "unknown" {
			t.Errorf("at once, at %s: %s", at, got.Kubecdc.Certainty)
		}
	}
	began := time.Now()
	wait.Eventually(t, settledWithin, func() error {
		world.Pass(t.Context(), 10*time.Second)
		write()
		for _, at := range []string{byVersion, byTime} {
			got := ask(t, "events", "-n", namespace, "--at", at, "--bus", bus.URL)
			switch exact := got.Kubecdc.Certainty == "exact"; {
			case len(got.Items) != events:
				oracle.Fail(t, "at %s: %s, with %d objects", at, got.Kubecdc.Certainty, len(got.Items))
			case !exact:
				return fmt.Errorf("at %s: %+v", at, got.Kubecdc)
			}
		}
		return nil
	})
	t.Logf("exact after %v", time.Since(began))
	world.Pass(t.Context(), 70*time.Second) // the checkpoint is saved each minute
	before := len(s.All())
	if err := a.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	a.Again(t)
	a.Ready(t)
	if err := p.API.Remove(t.Context(), path+"/event-0"); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, 3*time.Minute, func() error {
		got := ask(t, "events", "-n", namespace, "--at", fmt.Sprint("rv:", p.Now(t)), "--bus", bus.URL)
		if len(got.Items) != events-1 {
			return fmt.Errorf("%d objects after a deletion: %s", len(got.Items), got.Kubecdc.Certainty)
		}
		return nil
	})
	for _, rec := range s.All()[before:] {
		if rec.Stream == oracle.Gap || rec.Stream == oracle.SnapshotStarted {
			t.Errorf("after the restart: %s", rec.ID)
		}
	}
}
