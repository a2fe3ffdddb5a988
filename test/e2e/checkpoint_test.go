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
)

// TestQuietAgent has an agent watch the namespace in which it keeps its own checkpoint. It may not feed on itself.
func TestQuietAgent(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, own = "quiet", "own-checkpoint"
	p := startPlane(t, controlplane.Options{NoControllerManager: true}) // Nobody else changes ConfigMaps: no bookmark moves on.
	s := stageOn(t, p, luck())
	s.newNamespace(t, namespace)
	s.makeMany(t, namespace, "old", 10)
	s.beginWith(t, agentConfig{Watch: watchConfigMaps(namespace)}, fmt.Sprintf("configMap: {namespace: %s, name: %s}", namespace, own))
	s.stream.completed(t, "configmaps")
	uri := collection("configmaps", namespace) + "/" + own
	saved := func() uint64 {
		raw, err := p.api.get(t.Context(), uri)
		if apierrors.IsNotFound(err) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		v, err := readVersion("configmaps", 0, raw)
		if err != nil {
			t.Fatal(err)
		}
		return v.Rev
	}
	last := saved()
	for i := range 3 {
		s.rewrite(t, namespace, "old-1", fmt.Sprint("change ", i))
		eventually(t, 30*time.Second, func() error {
			if now := saved(); now != last {
				last = now
				return nil
			}
			return errors.New("the checkpoint is not saved")
		})
	}
	// Now it is quiet: the save of what the last change brought, and none because of a save.
	before := saved()
	pass(t.Context(), 8*time.Second)
	if now := saved(); now != before {
		t.Errorf("the checkpoint was saved while nothing changed: from resourceVersion %d to %d", before, now)
	}
	for _, rec := range s.stream.all() {
		if rec.Key.Name == own {
			t.Errorf("%s: the agent captures its own checkpoint", rec.ID)
		}
	}
	s.stopAgent(t)
	n := len(s.stream.all())
	s.agent.again(t)
	rec := s.rewrite(t, namespace, "old-1", "at last")
	if list := s.since(n); len(list) != 1 || list[0].ID != rec.ID {
		t.Errorf("%d records after a restart with one change: %v", len(list), list)
	}
}

// TestCheckpoint damages the checkpoint, takes one of another cluster, and loses it.
func TestCheckpoint(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, objects = "checkpoint", 50
	s := resumeStage(t, namespace, objects, agentConfig{})
	s.stream.completed(t, "configmaps")
	s.stopAgent(t)
	good, err := os.ReadFile(s.checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	foreign := []byte(strings.Replace(string(good), s.uid, "00000000-0000-0000-0000-000000000000", 1))
	for _, tc := range []struct {
		name    string
		content []byte
		want    []string
	}{
		{"truncated", good[:len(good)/2], []string{"damaged", "kubecdc checkpoint reset"}},
		{"edited", foreign, []string{"damaged", "kubecdc checkpoint reset"}}, // Its seal is broken.
		{"empty", nil, []string{"kubecdc checkpoint reset"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(s.checkpoint, tc.content, 0o600); err != nil {
				t.Fatal(err)
			}
			n := len(s.stream.all())
			before, err := os.ReadFile(s.agent.log)
			if err != nil {
				t.Fatal(err)
			}
			s.agent.again(t)
			if err := s.agent.wait(30 * time.Second); err == nil || !s.agent.ended() {
				t.Fatalf("the agent ended with %v, want an error", err)
			}
			s.agent.killed = true // It ended as it should.
			log, err := os.ReadFile(s.agent.log)
			if err != nil {
				t.Fatal(err)
			}
			text := string(log[len(before):])
			for _, want := range append(tc.want, s.checkpoint) {
				if !strings.Contains(text, want) {
					t.Errorf("the agent's last words lack %q:\n%s", want, text)
				}
			}
			if list := s.since(n); len(list) > 0 {
				t.Errorf("%d records came all the same", len(list))
			}
			s.checkpointIs(t, tc.content)
		})
	}

	// Another cluster's bus and name, this one's checkpoint.
	t.Run("foreign", func(t *testing.T) {
		if err := os.WriteFile(s.checkpoint, good, 0o600); err != nil {
			t.Fatal(err)
		}
		s.agent.reconfigure(t, "cluster: "+clusterName, "cluster: another")
		s.agent.again(t)
		if err := s.agent.wait(30 * time.Second); err == nil || !s.agent.ended() {
			t.Fatalf("the agent ended with %v, want an error", err)
		}
		s.agent.killed = true
		s.checkpointIs(t, good)
		s.agent.reconfigure(t, "cluster: another", "cluster: "+clusterName)
	})

	t.Run("lost", func(t *testing.T) {
		if err := os.Remove(s.checkpoint); err != nil {
			t.Fatal(err)
		}
		s.change(t, namespace, 5)
		s.agent.again(t)
		s.losses = append(s.losses, loss{Rev: s.now(t), Final: true})
		s.await(t, "a second snapshot", func(rec *record) bool {
			return rec.Stream == snapshotCompleted && rec.Snapshot != s.stream.all()[0].Snapshot
		})
		got := s.judge(t, nil, "configmaps")
		if n := len(got.Gaps); n != 1 || got.Gaps[0].Reason != checkpointLost {
			t.Errorf("gaps %+v, want one, because the checkpoint is lost", got.Gaps)
		}
	})
}

// checkpointIs fails the test if the agent has written to its checkpoint.
func (s *stage) checkpointIs(t *testing.T, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(s.checkpoint); err != nil || !bytes.Equal(got, want) {
		t.Errorf("an agent that refused its checkpoint has replaced it (%v):\n%s", err, got)
	}
}
