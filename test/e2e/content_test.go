package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// sizedWidgets is a version of the CRD in which each widget without a size has one; 0: none has.
func sizedWidgets(size int) obj {
	if size == 0 {
		return widgetVersion("v1", true, true, nil)
	}
	return widgetVersion("v1", true, true, obj{"spec": obj{
		"type": "object", "x-kubernetes-preserve-unknown-fields": true,
		"properties": obj{"size": obj{"type": "integer", "default": size}},
	}})
}

// TestContentChanged gives the definition of a resource a default, while the agent runs and while
// it does not. No object is changed: the API server serves the known versions in another form. A
// gap must say so, and a snapshot must have the new form, which the next before has too.
func TestContentChanged(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "content"
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	defineVersions(t, p, sizedWidgets(0))
	s := world.StageOn(t, p, world.Luck())
	s.NewNamespace(t, namespace)
	makeWidgets(t, p, namespace, "first", 3)
	all := world.Collection(oracle.Widgets, namespace)
	s.Begin(t, world.AgentConfig{Watch: "  - resources: [" + oracle.Widgets + "]"})
	s.Stream.Completed(t, oracle.Widgets)
	served := func(name string, size int) *oracle.Version {
		t.Helper()
		var raw []byte
		wait.Eventually(t, time.Minute, func() (err error) {
			raw, err = p.API.Get(t.Context(), all+"/"+name)
			if err == nil && !bytes.Contains(raw, fmt.Appendf(nil, `"size":%d`, size)) {
				err = errors.New("it is served without its size")
			}
			return err
		})
		v, err := oracle.ReadVersion(oracle.Widgets, 0, raw)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	// announced waits for a gap after the first n records, and for the snapshot after it, in which
	// the widgets have these sizes.
	announced := func(n int, sizes ...int) {
		t.Helper()
		var gap, completed *oracle.Record
		wait.Eventually(t, 2*time.Minute, func() error {
			gap, completed = nil, nil
			records := s.Since(n)
			for i := range records {
				switch rec := &records[i]; {
				case rec.Stream == oracle.Gap && rec.Reason == oracle.ContentChanged:
					gap = rec
				case rec.Stream == oracle.SnapshotCompleted && gap != nil:
					completed = rec
				}
			}
			if completed == nil {
				return fmt.Errorf("no snapshot after the gap %+v", gap)
			}
			return nil
		})
		if gap.Recovered || gap.History != 0 {
			oracle.Fail(t, "gap %s, recovered %t", gap.ID, gap.Recovered)
		}
		for i, size := range sizes {
			v := served(fmt.Sprint("w-", i), size)
			read := s.Await(t, fmt.Sprint("the read of ", v.Key), func(rec *oracle.Record) bool {
				return rec.Op == oracle.Read && rec.Snapshot == completed.Snapshot && rec.UID == v.UID
			})
			if read.Rev != v.Rev || read.AfterDigest != v.Digest {
				oracle.Fail(t, "%s has another content than the API server at revision %d", read.ID, v.Rev)
			}
		}
		for _, rec := range s.Since(n) {
			for _, problem := range rec.Problems {
				oracle.Fail(t, "%s: %s", rec.ID, problem)
			}
			if rec.Stream == oracle.Gap && rec.Reason != oracle.ContentChanged && rec.Reason != oracle.Expired {
				oracle.Fail(t, "gap %s (%s)", rec.ID, rec.Reason)
			}
		}
	}
	tableHas := func(text string) {
		t.Helper()
		wait.Eventually(t, final, func() error {
			a := ask(t, oracle.Widgets, "w-1", "-n", namespace, "--at", "now", "--bus", s.Bus.URL)
			var table bytes.Buffer
			for _, item := range a.Items {
				if err := json.Compact(&table, item); err != nil {
					return err
				}
			}
			switch {
			case len(a.Items) != 1 || !bytes.Contains(table.Bytes(), []byte(text)):
				return fmt.Errorf("the table has %s, want %s", a.Items, text)
			case len(a.Kubecdc.Scopes) != 1 || a.Kubecdc.Scopes[0].Certainty != "exact":
				return fmt.Errorf("the table is %+v", a.Kubecdc.Scopes)
			}
			return nil
		})
	}

	n := len(s.Stream.All())
	defineVersions(t, p, sizedWidgets(5))
	announced(n, 5, 5, 5)
	tableHas(`"size":5`)
	before := served("w-0", 5)
	if _, err := p.API.MergePatch(t.Context(), all+"/w-0", obj{"spec": obj{"text": "second"}}); err != nil {
		t.Fatal(err)
	}
	updated := s.Await(t, "the update", func(rec *oracle.Record) bool {
		return rec.Op == oracle.Updated && rec.UID == before.UID
	})
	if updated.BeforeDigest != before.Digest || updated.PrevRev != before.Rev {
		oracle.Fail(t, "%s begins with another content than the snapshot has", updated.ID)
	}

	world.Pass(t.Context(), 6*time.Second) // the checkpoint is saved every 5 s
	s.StopAgent(t)
	n = len(s.Stream.All())
	defineVersions(t, p, sizedWidgets(6))
	served("w-1", 6)
	s.Agent.Again(t)
	announced(n, 5, 6, 6) // the change of w-0 has stored its size
	tableHas(`"size":6`)
}

// TestTwoMinors has two API servers of different minors behind one address, as during an upgrade.
// The agent reaches one and the other in turn. Each scope is announced at most once, and nothing is
// lost.
func TestTwoMinors(t *testing.T) {
	slow(t)
	onlyLong(t, "ten minutes")
	t.Parallel()
	const namespace, deployments = "minors", "deployments.apps"
	s := world.NewStage(t, 2, world.Luck())
	if err := s.RestartAPIServer(t.Context(), 1, "--emulated-version="+formerMinor); err != nil {
		t.Fatal(err)
	}
	s.LoseHistory(t, 1)
	versions := make(map[string]bool)
	for i := range 2 {
		versions[servedVersion(t, s, i)] = true
	}
	if len(versions) != 2 {
		t.Fatalf("both API servers are of %v", versions)
	}
	s.NewNamespace(t, namespace)
	s.MakeConfigMaps(t, namespace, "turn", 10)
	all := world.Collection(deployments, namespace)
	if _, err := s.Plane.API.Create(t.Context(), all, deployment("web")); err != nil {
		t.Fatal(err)
	}
	s.Begin(t, world.AgentConfig{
		Watch: "  - resources: [configmaps, " + deployments + "]\n    namespaces: [" + namespace + "]",
	})
	s.Stream.Completed(t, "configmaps", deployments)
	for n := range 20 {
		s.API.Drop(n % 2)
		s.API.Restore(1 - n%2)
		for i := range 10 {
			change := obj{"data": obj{"turn": fmt.Sprint(n)}}
			name := fmt.Sprintf("%s/turn-%d", world.Collection("configmaps", namespace), i)
			if _, err := s.Plane.API.MergePatch(t.Context(), name, change); err != nil {
				t.Fatal(err)
			}
		}
		labels := obj{"metadata": obj{"labels": obj{"turn": fmt.Sprint(n)}}}
		if _, err := s.Plane.API.MergePatch(t.Context(), all+"/web", labels); err != nil {
			t.Fatal(err)
		}
		world.Pass(t.Context(), 30*time.Second)
	}
	announced := make(map[string]int)
	got := s.Judge(t, nil, "configmaps", deployments)
	for _, gap := range got.Gaps {
		if gap.Reason != oracle.ContentChanged {
			oracle.Fail(t, "gap %s (%s)", gap.ID, gap.Reason)
		}
		announced[gap.Scope.Text]++
	}
	for scope, n := range announced {
		if n > 1 {
			oracle.Fail(t, "%s is announced %d times", scope, n)
		}
	}
	t.Logf("versions %v, %d records, announced: %v", versions, got.Records, announced)
}

// formerMinor is the minor that an API server emulates.
const formerMinor = "1.36"

// servedVersion returns the version that API server i says it has.
func servedVersion(t *testing.T, s *world.Stage, i int) string {
	t.Helper()
	api, err := world.NewAPI(s.ConfigFor(i, controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := api.Get(t.Context(), "/version")
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ GitVersion, EmulationMajor, EmulationMinor string }
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v.GitVersion + " as " + v.EmulationMajor + "." + v.EmulationMinor
}

// deployment returns a Deployment without replicas.
func deployment(name string) obj {
	labels := obj{"app": name}
	return obj{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": world.Meta(name),
		"spec": obj{
			"replicas": 0, "selector": obj{"matchLabels": labels},
			"template": obj{"metadata": obj{"labels": labels}, "spec": obj{"containers": []obj{{
				"name":  "c",
				"image": "none",
			}}}},
		},
	}
}
