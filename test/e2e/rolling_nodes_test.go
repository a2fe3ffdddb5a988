package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// boundPods is one step of a writer of Pods that are bound to a node from their birth, as those of a DaemonSet.
func (w *writer) boundPods(node string) func(context.Context) error {
	return func(ctx context.Context) error {
		all := collection("pods", w.namespace)
		name := w.name()
		uri := all + "/" + name
		w.n++
		pod := obj{
			"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, "labels", obj{"step": fmt.Sprint(w.n)}),
			"spec": obj{"nodeName": node, "containers": []obj{{"name": "c", "image": "example.invalid/c"}}},
		}
		var err error
		switch w.rng.IntN(8) {
		case 0, 1, 2:
			_, err = w.api.create(ctx, all, pod)
		case 3, 4:
			_, err = w.api.mergePatch(ctx, uri+"/status", obj{"status": obj{"phase": "Running", "message": w.text()}})
		case 5, 6:
			_, err = w.api.mergePatch(ctx, uri, obj{"metadata": obj{"annotations": obj{"text": w.text()}}})
		case 7: // No kubelet would end it.
			err = w.api.remove(ctx, uri+"?gracePeriodSeconds=0")
		}
		return err
	}
}

// TestRollingUpdateOfNodes exchanges the agents of a DaemonSet, one node after the other, while the pods on the nodes change:
// SIGTERM, and then a new process with the same file as its checkpoint. Nothing is lost, and nothing is there twice.
func TestRollingUpdateOfNodes(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, rounds = "rolling-nodes", 2
	s := &stage{plane: sharedPlane(t), rng: luck(), bus: startBusProcess(t), window: shortWindow}
	s.newNamespace(t, namespace)
	s.stream = readStream(t, s.bus, s.reader())
	sw := &steadyWriters{every: 40 * time.Millisecond, apis: []*api{s.plane.api}}
	nodes := []string{"rolling-a", "rolling-b", "rolling-c"}
	var agents []*agent
	var steps []func(*writers) func(context.Context) error
	for _, node := range nodes {
		if _, err := s.plane.api.create(t.Context(), collection("nodes", ""), obj{"apiVersion": "v1", "kind": "Node", "metadata": meta(node)}); err != nil {
			t.Fatal(err)
		}
		agents = append(agents, startAgent(t, s.plane, agentConfig{
			Watch: "  - resources: [pods]\n    namespaces: [" + namespace + "]", Bus: candidBus{s.bus},
			Extra: "mode: node", Env: []string{"NODE_NAME=" + node},
		}))
		steps = append(steps, func(ws *writers) func(context.Context) error { return ws.writer(node, namespace, 25).boundPods(node) })
	}
	for _, a := range agents {
		a.ready(t)
	}
	stop := sw.run(t, steps...)
	for range rounds {
		for _, a := range agents {
			s.pause(t, 200*time.Millisecond, 800*time.Millisecond)
			if err := a.stop(time.Minute); err != nil {
				t.Errorf("agent, asked to stop: %v", err)
			}
			s.pause(t, 0, 500*time.Millisecond)
			a.again(t)
			a.ready(t)
		}
	}
	s.pause(t, 200*time.Millisecond, 800*time.Millisecond)
	stop()

	until := s.now(t)
	var total verdict
	for _, node := range nodes {
		want := make(map[objectKey][]expectation)
		var records []record
		var v view
		judged := func() {
			records = ofNode(s.stream.all(), node)
			v = livesView(records, 0)
			v.Until, v.Window = until, s.window
			history := s.history.of("pods")
			for key := range history {
				if key.Namespace != namespace || !strings.HasPrefix(key.Name, node+"-") {
					delete(history, key)
				}
			}
			want = expect(history, v)
		}
		judged()
		s.stream.waitFor(t, want, 15*time.Second)
		judged()
		got := judge(want, records, v)
		report(t, s.plane, s.stream, append(got.Faults, judgeLives(want, records, nil, nil)...))
		got.noGaps(t)
		if got.Duplicates != 0 || got.Expected == 0 {
			t.Errorf("node %s: %d records expected, %d duplicates", node, got.Expected, got.Duplicates)
		}
		for scope, n := range snapshotCounts(records) {
			if n != 1 {
				t.Errorf("%d snapshots of %s, want one", n, scope)
			}
		}
		total.Expected += got.Expected
		total.Records += got.Records
		total.Duplicates += got.Duplicates
	}
	t.Logf("%d agents, each exchanged %d times: %d records expected, %d on the bus, %d duplicates", len(nodes), rounds, total.Expected, total.Records, total.Duplicates)
}

// ofNode are the records of a node's agent: its stream events, and those of the pods that are named for the node.
func ofNode(records []record, node string) []record {
	var list []record
	for i := range records {
		rec := &records[i]
		if rec.Stream != "" && strings.HasSuffix(rec.Scope.Text, "="+node) || rec.Stream == "" && strings.HasPrefix(rec.Key.Name, node+"-") {
			list = append(list, *rec)
		}
	}
	return list
}
