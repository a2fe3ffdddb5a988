package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestKilledInsideSnapshot kills the agent again and again while it takes its first snapshot.
func TestKilledInsideSnapshot(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, objects = "killed-inside", 3_000
	s := world.StageOn(t, world.SharedPlane(t), world.Luck())
	s.NewNamespace(t, namespace)
	s.MakeMany(t, namespace, "old", objects)
	s.BusProxy.Delay(60 * time.Millisecond)
	s.Begin(t, world.AgentConfig{Watch: world.WatchConfigMaps(namespace), Extra: "queue: {events: 64}"})
	s.Stream.Started(t, "configmaps")
	for i := range 3 {
		n := len(s.Stream.All())
		wait.Eventually(t, time.Minute, func() error {
			if len(s.Stream.All()) < n+300 {
				return errors.New("too few reads to be in the middle")
			}
			return nil
		})
		if i == 1 { // After the cursor has been saved.
			s.BusProxy.Hold(true)
			world.Pass(t.Context(), 6*time.Second)
		}
		for _, rec := range s.Stream.All() {
			if rec.Stream == oracle.SnapshotCompleted {
				t.Fatal("the snapshot was completed before the agent could be killed")
			}
		}
		s.Agent.Crash()
		s.BusProxy.Hold(false)
		s.Change(t, namespace, 10*i) // The first time: nothing.
		s.MakeConfigMaps(t, namespace, fmt.Sprint("later-", i), 3)
		s.Agent.Again(t)
	}
	s.BusProxy.Delay(0)
	s.Stream.Completed(t, "configmaps")
	got := s.Judge(t, nil, "configmaps")
	got.NoGaps(t)
	if n := len(oracle.SnapshotsOf(s.Stream.All(), 0)); n != 1 {
		oracle.Fail(t, "%d snapshots, want one that is continued", n)
	}
	t.Logf("%d records, %d duplicates", got.Records, got.Duplicates)
}

// TestSnapshotOnDemand asks for snapshots, by the command and by snapshot.every, while objects
// change.
func TestSnapshotOnDemand(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, objects = "on-demand", 600
	s := world.ResumeStage(t, namespace, objects, world.AgentConfig{})
	s.Stream.Completed(t, "configmaps")
	sw := &world.SteadyWriters{APIs: []*world.API{s.Plane.API}, Every: 10 * time.Millisecond}
	var steps []func(*world.Writers) func(context.Context) error
	for i := range 3 {
		steps = append(steps, func(ws *world.Writers) func(context.Context) error {
			return ws.Writer(fmt.Sprint("cm", i), namespace, 20).ConfigMaps
		})
	}
	stop := sw.Run(t, steps...)
	asked := make(map[string]bool)
	for range 4 {
		world.Pass(t.Context(), time.Second)
		for _, id := range s.Agent.Snapshot(t, "configmaps", namespace) {
			asked[id] = true
			s.Await(t, "completed "+id, func(rec *oracle.Record) bool {
				return rec.Stream == oracle.SnapshotCompleted && rec.Snapshot == id
			})
		}
	}
	stop()
	got := s.Judge(t, func(started *oracle.Record) bool { return asked[started.Snapshot] }, "configmaps")
	got.NoGaps(t)
	if n := len(oracle.SnapshotsOf(s.Stream.All(), 0)); n != 1+len(asked) || len(asked) != 4 {
		oracle.Fail(t, "%d snapshots, %d of them requested, want 5 and 4", n, len(asked))
	}
	if got.Swept != 0 {
		oracle.Fail(t, "%d objects are swept by a snapshot, though no deletion was missed", got.Swept)
	}
	t.Logf("%d records, %d revisions", got.Records, s.History.Count("configmaps"))
}

// TestSnapshotEvery takes periodic snapshots, at the shortest interval that can be configured.
func TestSnapshotEvery(t *testing.T) {
	slow(t)
	t.Parallel()
	onlyLong(t, "three minutes")
	const namespace, objects = "every", 300
	s := world.ResumeStage(t, namespace, objects, world.AgentConfig{Snapshot: "initial, every: 1m"})
	s.Stream.Completed(t, "configmaps")
	sw := &world.SteadyWriters{APIs: []*world.API{s.Plane.API}, Every: 50 * time.Millisecond}
	stop := sw.Run(t, func(ws *world.Writers) func(context.Context) error {
		return ws.Writer("cm", namespace, 20).ConfigMaps
	})
	wait.Eventually(t, 3*time.Minute, func() error {
		n := 0
		for _, rec := range s.Stream.All() {
			if rec.Stream == oracle.SnapshotCompleted {
				n++
			}
		}
		if n < 3 {
			return fmt.Errorf("%d snapshots are completed", n)
		}
		return nil
	})
	stop()
	s.Now(t) // the oracle has read the last write
	last := s.History.LatestOf(namespace)
	// a run that ends sends what it has read
	s.Await(t, "the last write", func(rec *oracle.Record) bool { return rec.Rev >= last })
	s.StopAgent(t)
	got := s.Judge(t, func(*oracle.Record) bool { return true }, "configmaps")
	got.NoGaps(t)

	// Two minutes are also enough for progress events.
	n := 0
	for _, rec := range s.Stream.All() {
		if rec.Report != nil {
			n++
		}
	}
	if n < 3 {
		t.Errorf("%d progress events in two minutes and a shutdown, want at least 3", n)
	}
	if rec := s.Stream.All()[len(s.Stream.All())-1]; rec.Report == nil || !rec.Report.Ends ||
		!rec.Report.Reaches("configmaps", last) {
		t.Errorf("the last record is %s, want the last progress of the run, up to revision %d or later", rec.ID, last)
	}
}
