package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// backup stops etcd for a moment and copies its data.
func backup(t testing.TB, p *world.Plane) (dir string) {
	t.Helper()
	dir = t.TempDir()
	p.KillEtcd()
	if err := os.CopyFS(dir, os.DirFS(p.EtcdDataDir())); err != nil {
		t.Fatal(err)
	}
	if err := p.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	readAnew(t, p)
	return dir
}

// restore restores etcd from a backup as an operator does: with the API server down.
func restore(t testing.TB, p *world.Plane, dir string) {
	t.Helper()
	p.KillAPIServer(0)
	p.KillEtcd()
	if err := os.RemoveAll(p.EtcdDataDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(p.EtcdDataDir(), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.EtcdDataDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.StartAPIServer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	readAnew(t, p)
}

// readAnew reads etcd's history from its beginning: the previous reader has versions that no longer
// exist.
func readAnew(t testing.TB, p *world.Plane) {
	t.Helper()
	h, err := oracle.OpenHistory(p.EtcdEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { h.Run(ctx) })
	previous := p.History
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		previous.Close() // The last one is closed with the control plane.
	})
	p.History = h
	p.Now(t)
}

// ofHistory returns the records of one history.
func ofHistory(records []oracle.Record, history uint64) []oracle.Record {
	var list []oracle.Record
	for _, rec := range records {
		if rec.History == history {
			list = append(list, rec)
		}
	}
	return list
}

// rewoundCase is one agent of TestRewound.
type rewoundCase struct {
	name      string
	configMap bool // The checkpoint is in etcd, and restored along with it.
	down      bool
	second    int // The number of objects that are created in the second history before the agent reads it.

	namespace string
	stage     *world.Stage
	old       map[oracle.ObjectKey][]*oracle.Version
}

// ownCheckpoint is the name of a checkpoint in the namespace that its agent observes.
const ownCheckpoint = "own-checkpoint"

// TestRewound restores etcd from a backup, so that resourceVersions are assigned a second time, to
// other contents. The agents of one restore each have a namespace, a bus and a checkpoint.
func TestRewound(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	for _, tc := range []struct {
		name  string
		cases []*rewoundCase
	}{
		{"the new history is shorter", []*rewoundCase{
			{name: "agent running, checkpoint in a file", second: 5},
			{name: "agent running, checkpoint in a ConfigMap", configMap: true, second: 5},
			{name: "agent down, checkpoint in a file", down: true, second: 5},
			{name: "agent down, checkpoint in a ConfigMap", configMap: true, down: true, second: 5},
		}},
		{"the new history is longer", []*rewoundCase{{name: "agent down", down: true, second: 60}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // Most of it is waiting, and each has a control plane of its own.
			p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
			for i, c := range tc.cases {
				c.namespace = fmt.Sprint("rewound-", i)
				c.begin(t, p)
			}
			world.Pass(t.Context(), 6*time.Second) // The checkpoints are saved.
			dir := backup(t, p)
			for _, c := range tc.cases {
				c.leave(t)
			}
			end := p.Now(t)
			for _, c := range tc.cases {
				c.old = withoutKey(p.History.Of("configmaps"), ownCheckpoint)
			}
			restore(t, p, dir)
			for _, c := range tc.cases {
				p.MakeConfigMaps(t, c.namespace, "second", c.second)
			}
			if at := p.Now(t); (at > end) != (tc.cases[0].second > 5) {
				t.Errorf("the new history is at revision %d, the old one ended at %d", at, end)
			}
			for _, c := range tc.cases {
				if c.down {
					c.stage.Agent.Again(t)
				}
			}
			for _, c := range tc.cases {
				t.Run(c.name, func(t *testing.T) { c.judge(t, end) })
			}
		})
	}
}

// begin starts the agent and makes the changes that the backup will have.
func (c *rewoundCase) begin(t *testing.T, p *world.Plane) {
	t.Helper()
	s := world.StageOn(t, p, world.Luck())
	c.stage = s
	s.NewNamespace(t, c.namespace)
	s.MakeMany(t, c.namespace, "old", 150)
	config := world.AgentConfig{Watch: world.WatchConfigMaps(c.namespace)}
	if c.configMap {
		s.BeginWith(t, config, fmt.Sprintf("configMap: {namespace: %s, name: %s}", c.namespace, ownCheckpoint))
	} else {
		s.Begin(t, config)
	}
	s.Stream.Completed(t, "configmaps")
	s.Change(t, c.namespace, 10)
	s.Rewrite(t, c.namespace, "old-1", "before the copy")
}

// leave makes changes that the backup will not have.
func (c *rewoundCase) leave(t *testing.T) {
	t.Helper()
	c.stage.Change(t, c.namespace, 10)
	c.stage.Rewrite(t, c.namespace, "old-1", "soon undone")
	if c.down {
		c.stage.StopAgent(t)
		c.stage.MakeConfigMaps(t, c.namespace, "unseen", 3)
	}
}

// judge compares the stream with both histories. The first history ended at revision end.
func (c *rewoundCase) judge(t *testing.T, end uint64) {
	s := c.stage
	started := s.Await(t, "a snapshot of the second history", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.SnapshotCompleted && rec.History == 1
	})
	if _, err := s.Plane.API.MergePatch(t.Context(), world.Collection("configmaps", c.namespace)+"/old-1", obj{
		"data": obj{"text": "after"},
	}); err != nil {
		t.Fatal(err)
	}
	s.MakeConfigMaps(t, c.namespace, "third", 5)

	until := s.Now(t)
	var second oracle.Verdict
	var faults []oracle.Fault
	_ = wait.For(t.Context(), 10*time.Second, func() error {
		records := ofHistory(s.Stream.All(), 1)
		v := oracle.LivesView(records, 1)
		v.Until = until
		want := oracle.Expect(withoutKey(s.History.Of("configmaps"), ownCheckpoint), v)
		second = oracle.Judge(want, records, v)
		faults = append(second.Faults, oracle.JudgeLives(want, records, nil, oracle.Outside{})...)
		if len(faults) > 0 {
			return errors.New("faults are left")
		}
		return nil
	})
	world.Report(t, s.Plane, s.Stream, faults)
	if n := len(second.Gaps); n != 1 || second.Gaps[0].Reason != oracle.Rewound || second.Gaps[0].Recovered ||
		second.Gaps[0].Position > started.Position {
		oracle.Fail(t, "gaps of the second history: %+v, want one, rewound, before its snapshot", second.Gaps)
		return
	}
	if c.down { // It has sent a last progress, which a checkpoint that was restored together with etcd precedes.
		beginsAtLastProgress(t, s, &second.Gaps[0])
	}

	// The gap covers every record of the first history that is missing.
	records := ofHistory(s.Stream.All(), 0)
	gone := second.Gaps[0]
	gone.To = math.MaxUint64
	v := oracle.LivesView(records, 0)
	v.Until = end
	first := oracle.Judge(oracle.Expect(c.old, v), append(records, gone), v)
	world.Report(t, s.Plane, s.Stream, slices.DeleteFunc(first.Faults, func(f oracle.Fault) bool {
		return f.Kind == "final state" // No consumer is in the final state of this history.
	}))
	if lost := first.InGaps; (lost > 0) != c.down {
		oracle.Fail(t, "%d records of the first history are missing in the gap from %d", lost, gone.From)
	}
}

// withoutKey removes the objects of one name, which the agent never captures.
func withoutKey(history map[oracle.ObjectKey][]*oracle.Version, name string) map[oracle.ObjectKey][]*oracle.Version {
	for key := range history {
		if key.Name == name {
			delete(history, key)
		}
	}
	return history
}
