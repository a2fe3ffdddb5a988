package e2e_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// onlyLong skips a test that takes too long for make test.
func onlyLong(t testing.TB, took string) {
	t.Helper()
	if os.Getenv("FAULTS") == "" && !long() {
		t.Skipf("takes %s: part of make test-faults", took)
	}
}

// TestRestart ends the agent and starts it again, first without changes in between, then with a
// hundred.
func TestRestart(t *testing.T) {
	t.Parallel()
	const (
		namespace = "restart"
		changes   = 100
	)
	objects := size(1_500, 3_000, 10_000)
	s := world.ResumeStage(t, namespace, objects, world.AgentConfig{})
	s.Stream.Completed(t, "configmaps")
	for _, how := range []struct {
		name string
		end  func()
	}{
		{"stopped", func() { s.StopAgent(t) }},
		{"killed", func() { s.Agent.Crash() }},
	} {
		if how.name == "killed" {
			// Within five seconds, the last record is saved in the checkpoint: otherwise it is sent
			// again.
			world.Pass(t.Context(), 6*time.Second)
		}
		how.end()
		n := len(s.Stream.All())
		s.Agent.Again(t)
		s.Agent.Ready(t)
		last := s.Rewrite(t, namespace, "old-1", how.name)
		for _, rec := range s.Since(n) {
			if rec.ID != last.ID && rec.Stream != oracle.ScopeStarted {
				t.Errorf("%s and started again, with no change meanwhile: %s is on the bus", how.name, rec.ID)
			}
		}
	}

	s.StopAgent(t)
	last := s.Await(t, "progress at shutdown", func(rec *oracle.Record) bool {
		return rec.Report != nil && rec.Report.Ends && rec.Report.Reaches("configmaps", s.History.LatestOf(namespace))
	})
	if n := len(s.Since(int(last.Position))); n > 0 {
		oracle.Fail(t, "%d records after the progress at shutdown", n)
	}
	s.Change(t, namespace, changes)
	n, begin := len(s.Stream.All()), time.Now()
	s.Agent.Again(t)
	s.Await(t, "any event of the changes", func(rec *oracle.Record) bool {
		return rec.Position > uint64(n) && rec.Op != ""
	})
	first := time.Since(begin)
	s.Rewrite(t, namespace, "old-1", "last")
	got := s.Judge(t, nil, "configmaps")
	got.NoGaps(t)
	ops := make(map[string]int)
	for _, rec := range s.Since(n) {
		ops[rec.Op+rec.Stream]++
	}
	if want := changes + 2; len(s.Since(n)) != want || ops[oracle.ScopeStarted] != 1 || ops[oracle.Created] != 30 ||
		ops[oracle.Deleted] != 30 || ops[oracle.Updated] != 41 {
		oracle.Fail(t,
			"%d records after %d changes while the agent was down and one later, want %d, with the start of the scope: %v",
			len(s.Since(n)), changes, want, ops)
	}
	if got.Duplicates != 0 {
		oracle.Fail(t, "%d duplicates", got.Duplicates)
	}
	t.Logf("restart to the first new event with %d objects: %s", objects, first.Round(time.Millisecond))
}

// TestReplacedWhileDown replaces an object by another of the same name while the agent is down: a
// deletion and a creation.
func TestReplacedWhileDown(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "replaced"
	s := world.ResumeStage(t, namespace, 5, world.AgentConfig{})
	s.Stream.Completed(t, "configmaps")
	s.StopAgent(t)
	n := len(s.Stream.All())
	uri := world.Collection("configmaps", namespace)
	if err := s.Plane.API.Remove(t.Context(), uri+"/old-3"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Plane.API.Create(t.Context(), uri, obj{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   world.Meta("old-3"),
	}); err != nil {
		t.Fatal(err)
	}
	s.Agent.Again(t)
	s.JudgeWhole(t, "configmaps")
	var ops []string
	for _, rec := range s.Since(n) {
		if rec.Stream != oracle.ScopeStarted {
			ops = append(ops, rec.Op)
		}
	}
	if want := []string{oracle.Deleted, oracle.Created}; !slices.Equal(ops, want) {
		oracle.Fail(t, "ops %v, want %v", ops, want)
	}
}
