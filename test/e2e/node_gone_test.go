package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// pod creates a Pod on a node.
func (f *fleet) pod(t *testing.T, name, node string) {
	t.Helper()
	spec := obj{"containers": []obj{{"name": "c", "image": "none.invalid/c"}}, "nodeName": node}
	if _, err := f.plane.API.Create(t.Context(), world.Collection("pods", f.namespace), obj{
		"apiVersion": "v1", "kind": "Pod", "metadata": world.Meta(name), "spec": spec,
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) label(t *testing.T, pod, value string) {
	t.Helper()
	uri := world.Collection("pods", f.namespace) + "/" + pod
	if _, err := f.plane.API.MergePatch(t.Context(), uri, obj{"metadata": obj{"labels": obj{
		"step": value,
	}}}); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) remove(t *testing.T, pod string) {
	t.Helper()
	if err := f.plane.API.Remove(t.Context(),
		world.Collection("pods", f.namespace)+"/"+pod+"?gracePeriodSeconds=0"); err != nil {
		t.Fatal(err)
	}
}

// observes returns nil if the agent's metrics have a scope, and want is true, or if they have only
// other scopes and want is false. It returns an error if the agent does not answer, or has no scope
// at all.
func observes(ctx context.Context, a *world.Agent, scope string, want bool) error {
	text, err := a.Get(ctx, "/metrics")
	if err != nil {
		return err
	}
	some, got := false, false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "kubecdc_informer_objects{") {
			some = true
			got = got || strings.Contains(line, `scope="`+scope+`"`)
		}
	}
	switch {
	case !some:
		return errors.New("the agent's metrics have no scope")
	case got != want:
		return fmt.Errorf("the agent observes %s: %t, want %t", scope, got, want)
	}
	return nil
}

// TestObserves shows that observes accepts an agent only if it answers, and its answer is the
// wanted one.
func TestObserves(t *testing.T) {
	const (
		scope  = podsOf + "node-1"
		full   = `kubecdc_informer_objects{scope="` + scope + `"} 7` + "\n"
		empty  = `kubecdc_informer_objects{scope="` + scope + `"} 0` + "\n"
		longer = `kubecdc_informer_objects{scope="` + scope + `0"} 1` + "\n"
		other  = `kubecdc_informer_objects{scope="nodes"} 1` + "\n"
		lag    = `kubecdc_informer_lag_seconds{scope="` + scope + `"} 7` + "\n"
	)
	cutOff := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		answers(other)(w, r)
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		// Whether observes accepts the answer for an agent that must observe the scope, and for one
		// that must not.
		with, without bool
	}{
		"the connection is closed": {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"an error": {answer: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, other, http.StatusServiceUnavailable)
		}},
		"an answer that is cut off": {answer: cutOff},
		"an empty answer":           {answer: answers("")},
		"no scope":                  {answer: answers(lag)},
		"another scope":             {answer: answers(other), without: true},
		"a scope with a longer name, and another metric of this one": {answer: answers(longer + lag), without: true},
		"this scope among others": {
			answer: answers(other + full + longer),
			with:   true,
		},
		"this scope, without objects": {answer: answers(empty + other), with: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tc.answer)
			defer server.Close()
			a := &world.Agent{URL: server.URL}
			if err := observes(t.Context(), a, scope, true); (err == nil) != tc.with {
				t.Errorf("an agent that must observe it: %v", err)
			}
			if err := observes(t.Context(), a, scope, false); (err == nil) != tc.without {
				t.Errorf("an agent that must not observe it: %v", err)
			}
		})
	}
}

// answers returns a handler that answers each request with a text.
func answers(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// TestNodeIsGone kills the agent of a node and deletes the Node later, as happens when a machine
// dies. The node's Pods are deleted while no agent runs there. The central agent reports these
// deletions, and that of the Node.
func TestNodeIsGone(t *testing.T) {
	slow(t)
	p := world.SharedPlane(t)
	f := startFleet(t, p, "gone", 3)
	s := world.ReadStream(t, f.bus, p.Reader())
	f.snapshots(t, s)
	node := f.nodes[1]
	for i := range 6 {
		f.pod(t, fmt.Sprint("left-", i), node)
		f.pod(t, fmt.Sprint("kept-", i), f.nodes[0])
	}
	before := predict(p.History.Of("pods", "nodes"), f.namespace, f.snapshots(t, s), p.Now(t))
	waitExpected(t, s, before, 20*time.Second)

	f.agents[node].Crash()
	f.label(t, "left-0", "unseen")
	f.remove(t, "left-1") // Not seen either: a sweep has to report it.
	if err := p.API.Remove(t.Context(), "/api/v1/nodes/"+node); err != nil {
		t.Fatal(err)
	}
	gone := p.Now(t)
	f.label(t, "left-2", "seen")
	f.remove(t, "left-3")
	scope := podsOf + node
	began := func() (from, to uint64) {
		for _, rec := range s.All() {
			switch {
			case rec.Stream == oracle.Gap && rec.Scope.Text == scope && rec.Reason == oracle.CheckpointLost:
				from = rec.To
			case rec.Stream == oracle.SnapshotCompleted && rec.Scope.Text == scope:
				to = rec.Rev
			}
		}
		return from, to
	}
	wait.Eventually(t, 30*time.Second, func() error {
		if from, to := began(); from == 0 || to != from {
			return fmt.Errorf("the central agent has not taken over: gap to %d, snapshot at %d", from, to)
		}
		return nil
	})
	// A central agent that is killed resumes the takeover.
	f.central.Crash()
	f.label(t, "left-4", "away")
	f.central.Again(t)
	f.remove(t, "left-4")
	f.remove(t, "left-0")

	until := p.Now(t)
	at, _ := began()
	if at >= gone {
		oracle.Fail(t, "the central agent begins at %d, the Node was deleted at %d", at, gone)
	}
	want := predict(p.History.Of("pods", "nodes"), f.namespace, map[string]uint64{scope: at, nodeObject + node: at},
		until)
	for _, w := range want {
		if w.op == oracle.Deleted && w.scope == nodeObject+node && w.rev > gone {
			// gone was asked for after the deletion
			oracle.Fail(t, "the Node was deleted at %d, want %d at most", w.rev, gone)
		}
	}
	if len(want) < 6 {
		t.Fatalf("only %d events are wanted: %v", len(want), want)
	}
	waitExpected(t, s, want, 30*time.Second)
	missing := maps.Clone(want)
	for _, rec := range s.All() {
		if rec.Op != oracle.Read {
			delete(missing, rec.ID)
		}
		for _, problem := range rec.Problems {
			oracle.Fail(t, "record %d, %s: %s", rec.Position, rec.ID, problem)
		}
		if rec.Stream == oracle.Gap && rec.Scope.Text != scope {
			oracle.Fail(t, "gap in %s, though nothing was lost there", rec.Scope.Text)
		}
	}
	if len(missing) > 0 {
		oracle.Fail(t, "%d of %d events are not on the bus: %v", len(missing), len(want),
			slices.Sorted(maps.Keys(missing)))
	}
	f.compareTable(t, s)

	// The machine comes back with its agent: the central agent hands the node over to it.
	wait.Eventually(t, 30*time.Second, func() error { return observes(t.Context(), f.central, scope, true) })
	f.addNode(t, node)
	f.agents[node].Again(t)
	wait.Eventually(t, 30*time.Second, func() error { return observes(t.Context(), f.central, scope, false) })
	f.pod(t, "left-9", node)
	f.agents[node].Ready(t)
	wait.Eventually(t, 30*time.Second, func() error {
		for _, rec := range s.All() {
			if rec.Key.Name == "left-9" && rec.Op == oracle.Created && rec.Scope.Text == scope {
				return nil
			}
		}
		return errors.New("the agent of the node has not reported a new Pod")
	})
	f.compareTable(t, s)
}
