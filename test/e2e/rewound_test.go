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

// TestRewound restores etcd from a copy, so that resourceVersions are given a second time, to other contents.
func TestRewound(t *testing.T) {
	notRacing(t)
	const namespace, own = "rewound", "own-checkpoint"
	for _, tc := range []struct {
		name      string
		configMap bool // The checkpoint is in etcd, and restored along with it.
		down      bool
		beyond    bool // The new history is longer than the old one when the agent looks.
	}{
		{"agent running, checkpoint in a file", false, false, false},
		{"agent running, checkpoint in a ConfigMap", true, false, false},
		{"agent down, checkpoint in a file", false, true, false},
		{"agent down, checkpoint in a ConfigMap", true, true, false},
		{"agent down, the new history is longer", false, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // Most of it is waiting, and each has a control plane of its own.
			s := stageOn(t, startPlane(t, controlplane.Options{NoControllerManager: true}), luck())
			s.newNamespace(t, namespace)
			s.makeMany(t, namespace, "old", 150)
			c := agentConfig{Watch: watchConfigMaps(namespace)}
			if tc.configMap {
				s.beginWith(t, c, fmt.Sprintf("configMap: {namespace: %s, name: %s}", namespace, own))
			} else {
				s.begin(t, c)
			}
			s.stream.completed(t, "configmaps")
			s.change(t, namespace, 10)
			s.rewrite(t, namespace, "old-1", "before the copy")
			pass(t.Context(), 6*time.Second) // The checkpoint is saved.
			dir := s.backup(t)
			s.change(t, namespace, 10)
			s.rewrite(t, namespace, "old-1", "soon undone")
			if tc.down {
				s.stopAgent(t)
				s.makeConfigMaps(t, namespace, "unseen", 3)
			}
			end := s.now(t)
			old := withoutKey(s.history.of("configmaps"), own)

			s.restore(t, dir)
			more := 5
			if tc.beyond {
				more = 60
			}
			s.makeConfigMaps(t, namespace, "second", more)
			if tc.down {
				s.agent.again(t)
			}
			started := s.await(t, "a snapshot of the second history", func(rec *record) bool {
				return rec.Stream == snapshotCompleted && rec.History == 1
			})
			if _, err := s.plane.api.mergePatch(t.Context(), collection("configmaps", namespace)+"/old-1", obj{"data": obj{"text": "after"}}); err != nil {
				t.Fatal(err)
			}
			s.makeConfigMaps(t, namespace, "third", 5)

			until := s.now(t)
			var second verdict
			var faults []fault
			_ = await(t.Context(), 10*time.Second, func() error {
				records := ofHistory(s.stream.all(), 1)
				v := livesView(records, 1)
				v.Until = until
				want := expect(withoutKey(s.history.of("configmaps"), own), v)
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
			first := judge(expect(old, v), append(records, gone), v)
			report(t, s.plane, s.stream, slices.DeleteFunc(first.Faults, func(f fault) bool {
				return f.Kind == "final state" // Nobody is in the state in which this history ends.
			}))
			if lost := first.InGaps; (lost > 0) != tc.down {
				t.Errorf("%d records of the first history are missing in the gap from %d", lost, gone.From)
			}
		})
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
