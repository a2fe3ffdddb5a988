package e2e_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestAPIServers restarts the only API server, then one of two, and makes one lag.
func TestAPIServers(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, objects = "servers", 300
	t.Run("only one", func(t *testing.T) {
		t.Parallel() // It mostly waits, and has a control plane of its own.
		// One agent runs and the other is down when the API server restarts.
		running := world.NewStage(t, 1, world.Luck())
		down := world.StageOn(t, running.Plane, world.Luck())
		stages := map[string]*world.Stage{"servers-running": running, "servers-down": down}
		for namespace, s := range stages {
			s.NewNamespace(t, namespace)
			s.MakeMany(t, namespace, "old", objects)
			s.Begin(t, world.AgentConfig{Watch: world.WatchConfigMaps(namespace)})
			s.Stream.Completed(t, "configmaps")
		}
		down.StopAgent(t)
		running.API.Refuse(true)
		running.API.Cut()
		for namespace, s := range stages {
			s.Change(t, namespace, 40)
			// Change has created new-0: it is changed, deleted and created again.
			s.ChangeConfigMaps(t, namespace, "new", 1)
		}
		const brief = 3
		running.StopAPIServer(0)
		running.StartServer(t, 0)
		down.Losses = running.Losses
		for namespace, s := range stages {
			s.MakeConfigMaps(t, namespace, "after", 5)
		}
		down.Agent.Again(t)
		running.API.Refuse(false)
		for namespace, s := range stages {
			got := s.Judge(t, nil, "configmaps")
			if n := len(got.Gaps); n != 1 || !got.Gaps[0].Recovered || got.Gaps[0].Reason != oracle.Expired ||
				got.InGaps != brief {
				oracle.Fail(t,
					"%s: %d gaps (%+v), %d records missing in them; want one, expired, recovered but for the %d of an object that came and went",
					namespace, n, got.Gaps, got.InGaps, brief)
			}
			t.Logf("%s: %d records, %d inferred, %d duplicates", namespace, got.Records, got.Inferred, got.Duplicates)
		}
	})
	t.Run("one of two", func(t *testing.T) {
		t.Parallel()
		s := world.NewStage(t, 2, world.Luck())
		s.NewNamespace(t, namespace)
		s.MakeMany(t, namespace, "old", objects)
		s.Begin(t, world.AgentConfig{Watch: world.WatchConfigMaps(namespace)})
		s.Stream.Completed(t, "configmaps")
		s.API.Prefer(1)
		s.Change(t, namespace, 20)
		s.KillAPIServer(0) // The writers use this server, so the changes come before and after.
		s.StartServer(t, 0)
		s.ChangeConfigMaps(t, namespace, "new", 1)
		s.JudgeWhole(t, "configmaps")

		// Server 1 lags: the agent restarts on it, moves to server 0 and comes back.
		s.Etcd[1].Hold(true) // The agent is connected to this one.
		s.MakeConfigMaps(t, namespace, "lagging", 10)
		world.Pass(t.Context(), time.Second)
		s.Agent.Crash()
		s.Agent.Again(t) // A lagging API server is older than the checkpoint: that is no rewind.
		world.Pass(t.Context(), 3*time.Second)
		s.Etcd[1].Hold(false)
		s.JudgeWhole(t, "configmaps")
		s.Etcd[1].Hold(true)
		s.MakeConfigMaps(t, namespace, "lagging-again", 10)
		s.API.Drop(1) // The agent moves to the other server, which is ahead.
		s.JudgeWhole(t, "configmaps")
		s.API.Restore(1)
		s.API.Prefer(1)
		s.API.Drop(0) // And back to the server that still lags.
		world.Pass(t.Context(), 4*time.Second)
		s.Etcd[1].Hold(false)
		s.MakeConfigMaps(t, namespace, "at-last", 5)
		s.JudgeWhole(t, "configmaps")
	})
}

// TestCompactedWhileDown compacts the history while an agent is down: all of it, and between two
// pages of its list.
func TestCompactedWhileDown(t *testing.T) {
	t.Parallel()
	const objects = 1_200
	// Without a watch cache, the API server loses history when etcd compacts it.
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true, Uncached: []string{"configmaps"}})
	begin := func(t *testing.T, namespace string) *world.Stage {
		s := world.StageOn(t, p, world.Luck())
		s.NewNamespace(t, namespace)
		s.MakeMany(t, namespace, "old", objects)
		s.Begin(t, world.AgentConfig{Watch: world.WatchConfigMaps(namespace)})
		s.Stream.Completed(t, "configmaps")
		return s
	}
	t.Run("all", func(t *testing.T) {
		const namespace = "compacted"
		s := begin(t, namespace)
		s.StopAgent(t)
		from := s.Now(t)
		s.Change(t, namespace, 50)
		s.MakeConfigMaps(t, namespace, "brief", 3)
		for i := range 3 {
			if err := s.Plane.API.Remove(t.Context(),
				fmt.Sprintf("%s/brief-%d", world.Collection("configmaps", namespace), i)); err != nil {
				t.Fatal(err)
			}
		}
		// A compaction of kine removes deletions. The version of its newest object is then that of
		// its lists, and must not be below the compacted one.
		_, err := s.Plane.API.MergePatch(t.Context(), world.Collection("configmaps", namespace)+"/old-1",
			obj{"data": obj{"text": "kept"}})
		if err != nil {
			t.Fatal(err)
		}
		s.CompactNow(t)
		s.Agent.Again(t)
		got := s.Judge(t, nil, "configmaps")
		if n := len(oracle.SnapshotsOf(s.Stream.All(), 0)); n != 2 {
			oracle.Fail(t, "%d snapshots, want two", n)
		}
		if n := len(got.Gaps); n != 1 || got.Gaps[0].Reason != oracle.Compacted || got.Gaps[0].Recovered ||
			got.Gaps[0].From > from || got.Gaps[0].To < s.Losses[0].Rev {
			oracle.Fail(t, "%d gaps (%+v), want one, compacted, from %d or before to %d or later", n, got.Gaps, from,
				s.Losses[0].Rev)
		}
		if got.Swept != 15 || got.Inferred != 0 { // A deletion comes three times in ten changes.
			oracle.Fail(t, "%d objects swept and %d deltas inferred, want the 15 that were deleted, and none",
				got.Swept, got.Inferred)
		}
		s.Rewrite(t, namespace, "old-1", "last")
	})
	t.Run("between pages", func(t *testing.T) {
		const namespace = "compacted-between"
		s := begin(t, namespace)
		gaps := 0
		for i := range 6 {
			s.StopAgent(t)
			s.MakeConfigMaps(t, namespace, fmt.Sprint("more-", i), 5)
			asked := s.API.Accepted()
			s.Agent.Again(t)
			wait.Eventually(t, 30*time.Second, func() error {
				if s.API.Accepted() == asked {
					return errors.New("the agent has not called the API server")
				}
				return nil
			})
			s.API.Delay(time.Duration(20+10*i) * time.Millisecond) // Slows its pages down.
			world.Pass(t.Context(), time.Duration(100+80*i)*time.Millisecond)
			s.CompactNow(t)
			s.API.Delay(0)
			gaps = len(s.Judge(t, nil, "configmaps").Gaps)
		}
		if gaps == 0 {
			t.Error("no gap: the history was never taken away in time")
		}
		t.Logf("%d gaps in 6 starts", gaps)
	})
}

// TestBlackholedWatch drops everything that the API server sends, for longer than any bookmark
// takes. The connection stays open: the agent must detect the failure itself.
func TestBlackholedWatch(t *testing.T) {
	slow(t)
	t.Parallel()
	onlyLong(t, "three minutes")
	const namespace = "blackholed"
	s := world.ResumeStage(t, namespace, 20, world.AgentConfig{})
	s.Stream.Completed(t, "configmaps")
	world.Pass(t.Context(), 65*time.Second) // The watch has sent a bookmark.
	s.API.Hold(true)
	s.MakeConfigMaps(t, namespace, "unseen", 5)
	begin := time.Now()
	accepted := s.API.Accepted()
	wait.Eventually(t, 5*time.Minute, func() error {
		if s.API.Accepted() == accepted {
			return errors.New("the agent has not connected anew")
		}
		return nil
	})
	t.Logf("connected anew after %s", time.Since(begin).Round(time.Second))
	s.API.Cut() // The held traffic is lost.
	s.API.Hold(false)
	s.JudgeWhole(t, "configmaps")
}
