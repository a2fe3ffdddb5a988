package e2e_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

// TestAPIServers restarts the only API server, and then one of two, and has one lag behind.
func TestAPIServers(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, objects = "servers", 300
	t.Run("only one", func(t *testing.T) {
		t.Parallel() // It mostly waits, and has a control plane of its own.
		// Of two agents, one runs and one is down when it happens.
		running := newStage(t, 1, luck())
		down := stageOn(t, running.plane, luck())
		stages := map[string]*stage{"servers-running": running, "servers-down": down}
		for namespace, s := range stages {
			s.newNamespace(t, namespace)
			s.makeMany(t, namespace, "old", objects)
			s.begin(t, agentConfig{Watch: watchConfigMaps(namespace)})
			s.stream.completed(t, "configmaps")
		}
		down.stopAgent(t)
		running.api.Refuse(true)
		running.api.Cut()
		for namespace, s := range stages {
			s.change(t, namespace, 40)
			s.changeConfigMaps(t, namespace, "new", 1) // new-0, which is new: changed, deleted, made again.
		}
		const brief = 3
		running.StopAPIServer(0)
		running.startServer(t, 0)
		down.losses = running.losses
		for namespace, s := range stages {
			s.makeConfigMaps(t, namespace, "after", 5)
		}
		down.agent.again(t)
		running.api.Refuse(false)
		for namespace, s := range stages {
			got := s.judge(t, nil, "configmaps")
			if n := len(got.Gaps); n != 1 || !got.Gaps[0].Recovered || got.Gaps[0].Reason != expired || got.InGaps != brief {
				t.Errorf("%s: %d gaps (%+v), %d records missing in them; want one, expired, recovered but for the %d of an object that came and went",
					namespace, n, got.Gaps, got.InGaps, brief)
			}
			t.Logf("%s: %d records, %d inferred, %d duplicates", namespace, got.Records, got.Inferred, got.Duplicates)
		}
	})
	t.Run("one of two", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, 2, luck())
		s.newNamespace(t, namespace)
		s.makeMany(t, namespace, "old", objects)
		s.begin(t, agentConfig{Watch: watchConfigMaps(namespace)})
		s.stream.completed(t, "configmaps")
		s.api.Prefer(1)
		s.change(t, namespace, 20)
		s.KillAPIServer(0) // The writers' own, so the changes come before and after.
		s.startServer(t, 0)
		s.changeConfigMaps(t, namespace, "new", 1)
		s.judgeWhole(t, "configmaps")

		// Back to the first, which begins its history later than the agent is: it is asked where another is not.
		s.etcd[1].Hold(true) // The agent is on this one.
		s.makeConfigMaps(t, namespace, "lagging", 10)
		pass(t.Context(), time.Second)
		s.agent.crash()
		s.agent.again(t) // A lagging API server knows less than the checkpoint: that is no rewind.
		pass(t.Context(), 3*time.Second)
		s.etcd[1].Hold(false)
		s.judgeWhole(t, "configmaps")
		s.etcd[1].Hold(true)
		s.makeConfigMaps(t, namespace, "lagging-again", 10)
		s.api.Drop(1) // To the other one, which is ahead.
		s.judgeWhole(t, "configmaps")
		s.api.Restore(1)
		s.api.Prefer(1)
		s.api.Drop(0) // And back to the one that still lags.
		pass(t.Context(), 4*time.Second)
		s.etcd[1].Hold(false)
		s.makeConfigMaps(t, namespace, "at-last", 5)
		s.judgeWhole(t, "configmaps")
	})
}

// TestCompactedWhileDown takes the history from an agent that is down: all of it, and between two pages of its list.
func TestCompactedWhileDown(t *testing.T) {
	t.Parallel()
	const objects = 1_200
	// Without a watch cache, the API server forgets when etcd does.
	p := startPlane(t, controlplane.Options{NoControllerManager: true, Uncached: []string{"configmaps"}})
	begin := func(t *testing.T, namespace string) *stage {
		s := stageOn(t, p, luck())
		s.newNamespace(t, namespace)
		s.makeMany(t, namespace, "old", objects)
		s.begin(t, agentConfig{Watch: watchConfigMaps(namespace)})
		s.stream.completed(t, "configmaps")
		return s
	}
	t.Run("all", func(t *testing.T) {
		const namespace = "compacted"
		s := begin(t, namespace)
		s.stopAgent(t)
		from := s.now(t)
		s.change(t, namespace, 50)
		s.makeConfigMaps(t, namespace, "brief", 3)
		for i := range 3 {
			if err := s.plane.api.remove(t.Context(), fmt.Sprintf("%s/brief-%d", collection("configmaps", namespace), i)); err != nil {
				t.Fatal(err)
			}
		}
		s.compact(t)
		s.agent.again(t)
		got := s.judge(t, nil, "configmaps")
		if n := len(snapshotsOf(s.stream.all(), 0)); n != 2 {
			t.Errorf("%d snapshots, want two", n)
		}
		if n := len(got.Gaps); n != 1 || got.Gaps[0].Reason != compacted || got.Gaps[0].Recovered || got.Gaps[0].From > from || got.Gaps[0].To < s.losses[0].Rev {
			t.Errorf("%d gaps (%+v), want one, compacted, from %d or before to %d or later", n, got.Gaps, from, s.losses[0].Rev)
		}
		if got.Swept != 15 || got.Inferred != 0 { // A deletion comes three times in ten changes.
			t.Errorf("%d objects swept and %d deltas inferred, want the 15 that were deleted, and none", got.Swept, got.Inferred)
		}
		s.rewrite(t, namespace, "old-1", "last")
	})
	t.Run("between pages", func(t *testing.T) {
		const namespace = "compacted-between"
		s := begin(t, namespace)
		gaps := 0
		for i := range 6 {
			s.stopAgent(t)
			s.makeConfigMaps(t, namespace, fmt.Sprint("more-", i), 5)
			asked := s.api.Accepted()
			s.agent.again(t)
			eventually(t, 30*time.Second, func() error {
				if s.api.Accepted() == asked {
					return errors.New("the agent has not called the API server")
				}
				return nil
			})
			s.api.Delay(time.Duration(20+10*i) * time.Millisecond) // Its pages come slowly.
			pass(t.Context(), time.Duration(100+80*i)*time.Millisecond)
			s.compact(t)
			s.api.Delay(0)
			gaps = len(s.judge(t, nil, "configmaps").Gaps)
		}
		if gaps == 0 {
			t.Error("no gap: the history was never taken away in time")
		}
		t.Logf("%d gaps in 6 starts", gaps)
	})
}

// TestBlackholedWatch swallows what the API server sends, for longer than any of its bookmarks takes. Nobody closes the
// connection: the agent has to find out by itself.
func TestBlackholedWatch(t *testing.T) {
	slow(t)
	t.Parallel()
	onlyLong(t, "three minutes")
	const namespace = "blackholed"
	s := resumeStage(t, namespace, 20, agentConfig{})
	s.stream.completed(t, "configmaps")
	pass(t.Context(), 65*time.Second) // The watch has sent a bookmark.
	s.api.Hold(true)
	s.makeConfigMaps(t, namespace, "unseen", 5)
	begin := time.Now()
	accepted := s.api.Accepted()
	eventually(t, 5*time.Minute, func() error {
		if s.api.Accepted() == accepted {
			return errors.New("the agent has not connected anew")
		}
		return nil
	})
	t.Logf("connected anew after %s", time.Since(begin).Round(time.Second))
	s.api.Cut() // What was held is lost.
	s.api.Hold(false)
	s.judgeWhole(t, "configmaps")
}
