package consumers_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/test/kit"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

var (
	pythonClient = kit.Kit{
		Name: "pythonclient", Needs: python.Needs, Pins: []string{
			"testdata/kubernetes/requirements.txt",
		}, Steps: python.Steps,
	}
	manager = kit.Kit{
		Name: "manager", Needs: [][]string{{"go", "version"}}, Pins: []string{
			"manager/go.mod", "manager/go.sum", "manager/main.go",
		},
		Steps: [][]string{{"go", "build", "-o", "manager", "."}},
	}
)

// recordPods publishes a record of Pods: web-0 and web-1 at resourceVersion 100, then web-0 runs
// (110), web-2 is created (120), web-1 is deleted (130).
func recordPods(t *testing.T) *bus {
	t.Helper()
	pods := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	observed := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	pod := func(name, phase string, rv uint64) *object.Object {
		return object.New(object.NewRef(pods, "shop", name, "uid-of-"+name), rv, 0, nil, fmt.Appendf(nil,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":"uid-of-%s","resourceVersion":"%d","creationTimestamp":"2026-11-20T13:00:00Z","labels":{"app":"web"}},`+
				`"spec":{"containers":[{"name":"app","image":"web:1"}]},"status":{"phase":%q}}`, name, name, rv, phase))
	}
	stream := func(kind object.StreamKind, rv uint64, id string) *object.Delta {
		return &object.Delta{Stream: &object.StreamEvent{
			Kind:            kind,
			Resource:        pods,
			Scope:           "pods",
			Snapshot:        id,
			ResourceVersion: rv,
			Objects:         2,
			Observation:     &object.Observation{},
		}}
	}
	progress := func(number, rv uint64, to time.Time) *object.Delta {
		return &object.Delta{Report: &object.Report{
			Number: number, Since: observed, To: to, SnapshotBegan: observed, Scopes: []object.ScopeReport{{
				Resource:        pods,
				ResourceVersion: rv,
			}},
		}}
	}
	first := pod("web-0", "Pending", 90)
	second := pod("web-1", "Running", 95)
	running := pod("web-0", "Running", 110)
	third := pod("web-2", "Pending", 120)
	deltas := []*object.Delta{
		stream(object.ScopeStarted, 100, ""),
		stream(object.SnapshotStarted, 100, "first"),
		{Op: object.Read, Ref: first.Ref, After: first, ResourceVersion: 90, Snapshot: "first"},
		{Op: object.Read, Ref: second.Ref, After: second, ResourceVersion: 95, Snapshot: "first"},
		stream(object.SnapshotCompleted, 100, "first"),
		progress(1, 105, observed.Add(4*time.Second)),
		{Op: object.Updated, Ref: first.Ref, Before: first, After: running, ResourceVersion: 110, Previous: 90},
		{Op: object.Created, Ref: third.Ref, After: third, ResourceVersion: 120},
		{Op: object.Deleted, Ref: second.Ref, Before: second, ResourceVersion: 130, Previous: 95},
		progress(2, 140, observed.Add(9*time.Second)),
	}
	for i, d := range deltas {
		d.Observed = observed.Add(time.Duration(i) * time.Second).UnixNano()
	}
	b := startBus(t)
	b.publish(t, options(encode.Structured), deltas...)
	return b
}

// The official client for Python, unmodified, reads a point in time, and follows a replay.
func TestPythonAgainstThePast(t *testing.T) {
	t.Parallel()
	program := []string{filepath.Join(pythonClient.Dir(t), "venv", "bin", "python"), "-B", "testdata/past.py"}
	b := recordPods(t)
	ask := func(kubeconfig, what string, want []string) {
		t.Helper()
		p := start(t, append(slices.Clone(program), kubeconfig, what, t.TempDir()))
		var got []string
		for range want {
			got = append(got, p.line(t))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", what, diff)
		}
	}
	ask(world.ServePast(t, "--bus", b.URL, "--at", "rv:105").Kubeconfig, "moment", []string{
		"version 1",
		"pods 105 shop/web-0 shop/web-1",
		"labels shop/web-0 shop/web-1",
		"fields shop/web-1",
		"pages shop/web-0 shop/web-1 1",
		"read 90 web:1 Pending",
		"missing 404",
		"delete 405",
		"watch ADDED web-0 ADDED web-1",
		"dynamic 95",
	})
	ask(world.ServePast(t, "--bus", b.URL, "--from", "rv:105", "--to", "rv:140", "--speed", "max").Kubeconfig, "replay",
		[]string{
			"pods 105 shop/web-0 shop/web-1",
			"MODIFIED web-0 110 Running",
			"ADDED web-2 120 Pending",
			"DELETED web-1 130 Running",
		})
}

// A manager of controller-runtime, unmodified, reconciles the Pods of a point in time, and follows
// a replay. It cannot write.
func TestManagerAgainstThePast(t *testing.T) {
	t.Parallel()
	program := filepath.Join(manager.Dir(t), "manager")
	b := recordPods(t)
	ask := func(kubeconfig string, also []string, want ...string) {
		t.Helper()
		p := start(t, []string{program, "--kubeconfig", kubeconfig})
		seen := map[string]bool{}
		wait.Eventually(t, time.Minute, func() error {
			for {
				select {
				case line, ok := <-p.lines:
					if !ok {
						t.Fatal("the manager has ended")
					}
					seen[line] = true
					continue
				default:
				}
				break
			}
			var missing []error
			for _, line := range want {
				if !seen[line] {
					missing = append(missing, errors.New("not printed: "+line))
				}
			}
			return errors.Join(missing...)
		})
		for line := range seen {
			if !slices.Contains(want, line) && !slices.Contains(also, line) {
				t.Errorf("printed, but neither in %q nor in %q: %s", want, also, line)
			}
		}
		p.interrupt(t)
	}
	moment := []string{"shop/web-0 90 Pending", "shop/web-1 95 Running", "update: MethodNotAllowed"}
	ask(world.ServePast(t, "--bus", b.URL, "--at", "rv:105").Kubeconfig, nil, moment...)
	ask(world.ServePast(t, "--bus", b.URL, "--from", "rv:105", "--to", "rv:140", "--speed", "max").Kubeconfig, moment,
		"shop/web-0 110 Running", "shop/web-2 120 Pending", "shop/web-1 gone")
}
