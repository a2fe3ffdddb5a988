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
)

// backup stops etcd for a moment and copies its data.
func (p *plane) backup(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	p.KillEtcd()
	if err := os.CopyFS(dir, os.DirFS(p.EtcdDataDir())); err != nil {
		t.Fatal(err)
	}
	if err := p.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.readAnew(t)
	return dir
}

// restore puts etcd back to what it was, as an operator does: with the API server down.
func (p *plane) restore(t testing.TB, dir string) {
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
	p.readAnew(t)
}

// readAnew reads etcd's history from its beginning: the reader of before knows, or takes for known, what is no longer so.
func (p *plane) readAnew(t testing.TB) {
	t.Helper()
	h, err := openHistory(p.EtcdEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { h.run(ctx) })
	previous := p.history
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = previous.client.Close() // Nothing is lost by it. The last one is closed with the control plane.
	})
	p.history = h
	p.now(t)
}

// ofHistory are the records of one history.
func ofHistory(records []record, history uint64) []record {
	var list []record
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
	second    int // Objects of the second history, before the agent looks.

	namespace string
	stage     *stage
	old       map[objectKey][]*version
}

// ownCheckpoint is the name of a checkpoint in the namespace that its agent observes.
const ownCheckpoint = "own-checkpoint"

// TestRewound restores etcd from a copy, so that resourceVersions are given a second time, to other contents. The agents of one
// restore each have a namespace, a bus and a checkpoint.
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
			p := startPlane(t, controlplane.Options{NoControllerManager: true})
			for i, c := range tc.cases {
				c.namespace = fmt.Sprint("rewound-", i)
				c.begin(t, p)
			}
			pass(t.Context(), 6*time.Second) // The checkpoints are saved.
			dir := p.backup(t)
			for _, c := range tc.cases {
				c.leave(t)
			}
			end := p.now(t)
			for _, c := range tc.cases {
				c.old = withoutKey(p.history.of("configmaps"), ownCheckpoint)
			}
			p.restore(t, dir)
			for _, c := range tc.cases {
				p.makeConfigMaps(t, c.namespace, "second", c.second)
			}
			if at := p.now(t); (at > end) != (tc.cases[0].second > 5) {
				t.Errorf("the new history is at revision %d, the old one ended at %d", at, end)
			}
			for _, c := range tc.cases {
				if c.down {
					c.stage.agent.again(t)
				}
			}
			for _, c := range tc.cases {
				t.Run(c.name, func(t *testing.T) { c.judge(t, end) })
			}
		})
	}
}

// begin starts the agent and does what the copy will have.
func (c *rewoundCase) begin(t *testing.T, p *plane) {
	t.Helper()
	s := stageOn(t, p, luck())
	c.stage = s
	s.newNamespace(t, c.namespace)
	s.makeMany(t, c.namespace, "old", 150)
	config := agentConfig{Watch: watchConfigMaps(c.namespace)}
	if c.configMap {
		s.beginWith(t, config, fmt.Sprintf("configMap: {namespace: %s, name: %s}", c.namespace, ownCheckpoint))
	} else {
		s.begin(t, config)
	}
	s.stream.completed(t, "configmaps")
	s.change(t, c.namespace, 10)
	s.rewrite(t, c.namespace, "old-1", "before the copy")
}

// leave does what the copy will not have.
func (c *rewoundCase) leave(t *testing.T) {
	t.Helper()
	c.stage.change(t, c.namespace, 10)
	c.stage.rewrite(t, c.namespace, "old-1", "soon undone")
	if c.down {
		c.stage.stopAgent(t)
		c.stage.makeConfigMaps(t, c.namespace, "unseen", 3)
	}
}

// judge holds the stream against both histories, of which the first ended at a revision.
func (c *rewoundCase) judge(t *testing.T, end uint64) {
	s := c.stage
	started := s.await(t, "a snapshot of the second history", func(rec *record) bool {
		return rec.Stream == snapshotCompleted && rec.History == 1
	})
	if _, err := s.plane.api.mergePatch(t.Context(), collection("configmaps", c.namespace)+"/old-1", obj{"data": obj{"text": "after"}}); err != nil {
		t.Fatal(err)
	}
	s.makeConfigMaps(t, c.namespace, "third", 5)

	until := s.now(t)
	var second verdict
	var faults []fault
	_ = await(t.Context(), 10*time.Second, func() error {
		records := ofHistory(s.stream.all(), 1)
		v := livesView(records, 1)
		v.Until = until
		want := expect(withoutKey(s.history.of("configmaps"), ownCheckpoint), v)
		second = judge(want, records, v)
		if faults = append(second.Faults, judgeLives(want, records, nil, nil)...); len(faults) > 0 {
			return errors.New("faults are left")
		}
		return nil
	})
	report(t, s.plane, s.stream, faults)
	if n := len(second.Gaps); n != 1 || second.Gaps[0].Reason != rewound || second.Gaps[0].Recovered || second.Gaps[0].Position > started.Position {
		t.Fatalf("gaps of the second history: %+v, want one, rewound, before its snapshot", second.Gaps)
	}

	// Of the first history nothing is missing but what the gap says is gone.
	records := ofHistory(s.stream.all(), 0)
	gone := second.Gaps[0]
	gone.To = math.MaxUint64
	v := livesView(records, 0)
	v.Until = end
	first := judge(expect(c.old, v), append(records, gone), v)
	report(t, s.plane, s.stream, slices.DeleteFunc(first.Faults, func(f fault) bool {
		return f.Kind == "final state" // Nobody is in the state in which this history ends.
	}))
	if lost := first.InGaps; (lost > 0) != c.down {
		t.Errorf("%d records of the first history are missing in the gap from %d", lost, gone.From)
	}
}

// withoutKey leaves out what the agent never captures.
func withoutKey(history map[objectKey][]*version, name string) map[objectKey][]*version {
	for key := range history {
		if key.Name == name {
			delete(history, key)
		}
	}
	return history
}
