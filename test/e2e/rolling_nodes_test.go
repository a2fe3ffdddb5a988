package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// boundPods returns a writer step for Pods that are bound to a node when they are created, as those
// of a DaemonSet.
func boundPods(w *world.Writer, node string) func(context.Context) error {
	return func(ctx context.Context) error {
		all := world.Collection("pods", w.Namespace)
		name := w.Name()
		uri := all + "/" + name
		w.N++
		pod := obj{
			"apiVersion": "v1", "kind": "Pod", "metadata": world.Meta(name, "labels", obj{"step": fmt.Sprint(w.N)}),
			"spec": obj{"nodeName": node, "containers": []obj{{"name": "c", "image": "example.invalid/c"}}},
		}
		var err error
		switch w.RNG.IntN(8) {
		case 0, 1, 2:
			_, err = w.API.Create(ctx, all, pod)
		case 3, 4:
			_, err = w.API.MergePatch(ctx, uri+"/status", obj{"status": obj{"phase": "Running", "message": w.Text()}})
		case 5, 6:
			_, err = w.API.MergePatch(ctx, uri, obj{"metadata": obj{"annotations": obj{"text": w.Text()}}})
		case 7: // There is no kubelet that would end it.
			err = w.API.Remove(ctx, uri+"?gracePeriodSeconds=0")
		}
		return err
	}
}

// TestRollingUpdateOfNodes replaces the agents of a DaemonSet, one node after the other, while the
// Pods on the nodes change. Each agent gets SIGTERM, and a new process starts with the same
// checkpoint file. Nothing is lost, and nothing is sent twice.
func TestRollingUpdateOfNodes(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, rounds = "rolling-nodes", 2
	s := &world.Stage{
		Plane:  world.SharedPlane(t),
		RNG:    world.Luck(),
		Bus:    world.StartBusProcess(t),
		Window: shortWindow,
	}
	s.NewNamespace(t, namespace)
	s.Stream = world.ReadStream(t, s.Bus, s.Reader())
	sw := &world.SteadyWriters{Every: 40 * time.Millisecond, APIs: []*world.API{s.Plane.API}}
	nodes := []string{"rolling-a", "rolling-b", "rolling-c"}
	var agents []*world.Agent
	var steps []func(*world.Writers) func(context.Context) error
	for _, node := range nodes {
		if _, err := s.Plane.API.Create(t.Context(), world.Collection("nodes", ""), obj{
			"apiVersion": "v1",
			"kind":       "Node",
			"metadata":   world.Meta(node),
		}); err != nil {
			t.Fatal(err)
		}
		agents = append(agents, world.StartAgent(t, s.Plane, world.AgentConfig{
			Watch: "  - resources: [pods]\n    namespaces: [" + namespace + "]", Bus: candidBus{s.Bus},
			Extra: "mode: node", Env: []string{"NODE_NAME=" + node},
		}))
		steps = append(steps, func(ws *world.Writers) func(context.Context) error {
			return boundPods(ws.Writer(node, namespace, 25), node)
		})
	}
	for _, a := range agents {
		a.Ready(t)
	}
	stop := sw.Run(t, steps...)
	for range rounds {
		for _, a := range agents {
			s.Pause(t, 200*time.Millisecond, 800*time.Millisecond)
			if err := a.Stop(time.Minute); err != nil {
				t.Errorf("agent, asked to stop: %v", err)
			}
			s.Pause(t, 0, 500*time.Millisecond)
			a.Again(t)
			a.Ready(t)
		}
	}
	s.Pause(t, 200*time.Millisecond, 800*time.Millisecond)
	stop()

	until := s.Now(t)
	var total oracle.Verdict
	for _, node := range nodes {
		want := make(map[oracle.ObjectKey][]oracle.Expectation)
		var records []oracle.Record
		var v oracle.View
		judged := func() {
			records = ofNode(s.Stream.All(), node)
			v = oracle.LivesView(records, 0)
			v.Until, v.Window = until, s.Window
			history := s.History.Of("pods")
			for key := range history {
				if key.Namespace != namespace || !strings.HasPrefix(key.Name, node+"-") {
					delete(history, key)
				}
			}
			want = oracle.Expect(history, v)
		}
		judged()
		s.Stream.WaitFor(t, want, 15*time.Second)
		judged()
		got := oracle.Judge(want, records, v)
		world.Report(t, s.Plane, s.Stream,
			append(got.Faults, oracle.JudgeLives(want, records, nil, oracle.Outside{})...))
		got.NoGaps(t)
		if got.Duplicates != 0 || got.Expected == 0 {
			t.Errorf("node %s: %d records expected, %d duplicates", node, got.Expected, got.Duplicates)
		}
		for scope, n := range snapshotCounts(records) {
			if n != 1 {
				oracle.Fail(t, "%d snapshots of %s, want one", n, scope)
			}
		}
		total.Expected += got.Expected
		total.Records += got.Records
		total.Duplicates += got.Duplicates
	}
	t.Logf("%d agents, each exchanged %d times: %d records expected, %d on the bus, %d duplicates", len(nodes), rounds,
		total.Expected, total.Records, total.Duplicates)
}

// ofNode returns the records of a node's agent: its stream events, and those of the Pods that are
// named after the node.
func ofNode(records []oracle.Record, node string) []oracle.Record {
	var list []oracle.Record
	for i := range records {
		rec := &records[i]
		if rec.Stream != "" && strings.HasSuffix(rec.Scope.Text, "="+node) ||
			rec.Stream == "" && strings.HasPrefix(rec.Key.Name, node+"-") {
			list = append(list, *rec)
		}
	}
	return list
}
