package e2e_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// beginsAtLastProgress fails the test if a gap begins before what the last progress before it says.
func beginsAtLastProgress(t *testing.T, s *world.Stage, gap *oracle.Record) {
	t.Helper()
	var before []oracle.Record
	for _, rec := range s.Stream.All() {
		if rec.Position < gap.Position {
			before = append(before, rec)
		}
	}
	all := oracle.ObserversOf(before).Of(gap.Scope.Text)
	if len(all) != 1 || all[0].Rev == 0 || all[0].To.IsZero() {
		t.Fatalf("before %s, no progress of one writer claims anything: %+v", gap.ID, all)
	}
	// A checkpoint keeps times in whole seconds.
	last := all[0]
	if gap.From < last.Rev || gap.Since.Before(last.To.Truncate(time.Second)) {
		oracle.Fail(t, "%s begins at revision %d, since %s; the last progress has everything up to revision %d and %s",
			gap.ID, gap.From, gap.Since, last.Rev, last.To)
	}
}

// TestLostCheckpointBeginsAtTheLastProgress removes the checkpoint of an agent, and one of its two
// resources from its selection. The agent takes from its last progress where the gap begins, and
// which scope has ended.
func TestLostCheckpointBeginsAtTheLastProgress(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	const namespace = "last-progress"
	s := world.StageOn(t, world.SharedPlane(t), world.Luck())
	s.NewNamespace(t, namespace)
	s.MakeConfigMaps(t, namespace, "old", 20)
	s.Begin(t, world.AgentConfig{Watch: "  - resources: [configmaps, secrets]\n    namespaces: [" + namespace + "]"})
	s.Stream.Completed(t, "configmaps", "secrets")
	s.NewNamespace(t, namespace+"-other")
	s.MakeConfigMaps(t, namespace+"-other", "new", 3)
	seen := s.Now(t)
	world.Pass(t.Context(), 62*time.Second) // A bookmark shows a revision that no event of the scopes has.
	s.StopAgent(t)
	last := &s.Stream.All()[0]
	wait.Eventually(t, 10*time.Second, func() error {
		all := s.Stream.All()
		for i := range all {
			p := all[i].Report
			if p != nil && p.Ends {
				last = &all[i]
				return nil
			}
		}
		return errors.New("no last progress")
	})
	if !last.Report.Reaches("configmaps", seen) || !last.Report.Reaches("secrets", seen) {
		t.Fatalf("%s does not reach revision %d: the test shows nothing", last.ID, seen)
	}
	n := len(s.Stream.All())
	if err := os.Remove(s.Checkpoint); err != nil {
		t.Fatal(err)
	}
	s.Agent.Reconfigure(t, "[configmaps, secrets]", "[configmaps]")
	s.MakeConfigMaps(t, namespace, "missed", 2)
	s.Losses = append(s.Losses, oracle.Loss{Rev: s.Now(t), Final: true})
	s.Agent.Again(t)
	gap := s.Await(t, "a gap", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.Gap && rec.Scope.Resource == "configmaps"
	})
	beginsAtLastProgress(t, s, gap)
	s.Await(t, "the end of the scope of secrets", func(rec *oracle.Record) bool {
		isNew := rec.Writer == last.Writer && rec.Run != last.Run
		return rec.Stream == oracle.ScopeEnded && rec.Scope.Resource == "secrets" && isNew
	})
	got := s.Judge(t, nil, "configmaps", "secrets")
	for _, g := range got.Gaps { // The scope that ends may have one too.
		if g.Reason != oracle.CheckpointLost && (g.Reason != oracle.SelectionChanged || g.Scope.Resource != "secrets") {
			oracle.Fail(t, "%s: %s, want that the checkpoint is lost", g.ID, g.Reason)
		}
		beginsAtLastProgress(t, s, &g)
	}
	ends := 0
	for _, rec := range s.Since(n) {
		if rec.Stream == oracle.ScopeEnded {
			ends++
		}
	}
	if ends != 1 {
		oracle.Fail(t, "%d scopes end, want that of secrets", ends)
	}
}
