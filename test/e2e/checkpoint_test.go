package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestQuietAgent has an agent watch the namespace of its own checkpoint. Saving the checkpoint must
// not cause another save.
func TestQuietAgent(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, own = "quiet", "own-checkpoint"
	// Nobody else changes ConfigMaps: no bookmark advances.
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	s := world.StageOn(t, p, world.Luck())
	s.NewNamespace(t, namespace)
	s.MakeMany(t, namespace, "old", 10)
	s.BeginWith(t, world.AgentConfig{Watch: world.WatchConfigMaps(namespace)},
		fmt.Sprintf("configMap: {namespace: %s, name: %s}", namespace, own))
	s.Stream.Completed(t, "configmaps")
	uri := world.Collection("configmaps", namespace) + "/" + own
	saved := func() uint64 {
		raw, err := p.API.Get(t.Context(), uri)
		if apierrors.IsNotFound(err) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		v, err := oracle.ReadVersion("configmaps", 0, raw)
		if err != nil {
			t.Fatal(err)
		}
		return v.Rev
	}
	last := saved()
	for i := range 3 {
		s.Rewrite(t, namespace, "old-1", fmt.Sprint("change ", i))
		wait.Eventually(t, 30*time.Second, func() error {
			if now := saved(); now != last {
				last = now
				return nil
			}
			return errors.New("the checkpoint is not saved")
		})
	}
	// Now it is quiet: the last change causes one save, and a save causes none. The first
	// comparison of etcds, 10 s after the start, is saved too.
	world.Pass(t.Context(), 12*time.Second)
	before := saved()
	world.Pass(t.Context(), 8*time.Second)
	if now := saved(); now != before {
		t.Errorf("the checkpoint was saved while nothing changed: from resourceVersion %d to %d", before, now)
	}
	for _, rec := range s.Stream.All() {
		if rec.Key.Name == own {
			oracle.Fail(t, "%s: the agent captures its own checkpoint", rec.ID)
		}
	}
	s.StopAgent(t)
	n := len(s.Stream.All())
	s.Agent.Again(t)
	rec := s.Rewrite(t, namespace, "old-1", "at last")
	list := s.Since(n)
	if len(list) != 2 || list[0].Stream != oracle.ScopeStarted || list[1].ID != rec.ID {
		t.Errorf("%d records after a restart with one change, want the start of the scope and the change: %v",
			len(list), list)
	}
}

// TestCheckpoint damages the checkpoint, uses that of another cluster, and deletes it.
func TestCheckpoint(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, objects = "checkpoint", 50
	s := world.ResumeStage(t, namespace, objects, world.AgentConfig{})
	s.Stream.Completed(t, "configmaps")
	s.StopAgent(t)
	good, err := os.ReadFile(s.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	foreign := []byte(strings.Replace(string(good), s.UID, "00000000-0000-0000-0000-000000000000", 1))
	for _, tc := range []struct {
		name    string
		content []byte
		want    []string
	}{
		{"truncated", good[:len(good)/2], []string{"damaged", "kubecdc checkpoint reset"}},
		{"edited", foreign, []string{"damaged", "kubecdc checkpoint reset"}}, // Its checksum is wrong.
		{"empty", nil, []string{"kubecdc checkpoint reset"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(s.Checkpoint, tc.content, 0o600); err != nil {
				t.Fatal(err)
			}
			n := len(s.Stream.All())
			before, err := os.ReadFile(s.Agent.Log)
			if err != nil {
				t.Fatal(err)
			}
			s.Agent.Again(t)
			if err := s.Agent.Wait(30 * time.Second); err == nil || !s.Agent.Ended() {
				t.Fatalf("the agent ended with %v, want an error", err)
			}
			s.Agent.Killed = true // It ended as expected.
			log, err := os.ReadFile(s.Agent.Log)
			if err != nil {
				t.Fatal(err)
			}
			text := string(log[len(before):])
			for _, want := range append(tc.want, s.Checkpoint) {
				if !strings.Contains(text, want) {
					t.Errorf("the agent's last words lack %q:\n%s", want, text)
				}
			}
			if list := s.Since(n); len(list) > 0 {
				oracle.Fail(t, "%d records came all the same", len(list))
			}
			checkpointIs(t, s, tc.content)
		})
	}

	// The bus and the name of another cluster, with this cluster's checkpoint.
	t.Run("foreign", func(t *testing.T) {
		if err := os.WriteFile(s.Checkpoint, good, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Agent.Reconfigure(t, "cluster: "+world.ClusterName, "cluster: another")
		s.Agent.Again(t)
		if err := s.Agent.Wait(30 * time.Second); err == nil || !s.Agent.Ended() {
			t.Fatalf("the agent ended with %v, want an error", err)
		}
		s.Agent.Killed = true
		checkpointIs(t, s, good)
		s.Agent.Reconfigure(t, "cluster: another", "cluster: "+world.ClusterName)
	})

	t.Run("lost", func(t *testing.T) {
		if err := os.Remove(s.Checkpoint); err != nil {
			t.Fatal(err)
		}
		s.Change(t, namespace, 5)
		s.Agent.Again(t)
		s.Losses = append(s.Losses, oracle.Loss{Rev: s.Now(t), Final: true})
		s.Await(t, "a second snapshot", func(rec *oracle.Record) bool {
			return rec.Stream == oracle.SnapshotCompleted && rec.Snapshot != s.Stream.All()[0].Snapshot
		})
		got := s.Judge(t, nil, "configmaps")
		if n := len(got.Gaps); n != 1 || got.Gaps[0].Reason != oracle.CheckpointLost {
			oracle.Fail(t, "gaps %+v, want one, because the checkpoint is lost", got.Gaps)
			return
		}
		beginsAtLastProgress(t, s, &got.Gaps[0])
	})
}

// checkpointIs fails the test if the agent has written to its checkpoint.
func checkpointIs(t *testing.T, s *world.Stage, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(s.Checkpoint); err != nil || !bytes.Equal(got, want) {
		oracle.Fail(t, "an agent that refused its checkpoint has replaced it (%v):\n%s", err, got)
	}
}
