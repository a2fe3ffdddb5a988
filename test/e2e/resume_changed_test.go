package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const widgetsCRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + oracle.Widgets

// widgetVersion is one of spec.versions of the CRD.
func widgetVersion(name string, served, storage bool, more obj) obj {
	schema := obj{
		"type": "object", "properties": obj{"spec": obj{
			"type":                                 "object",
			"x-kubernetes-preserve-unknown-fields": true,
		}},
	}
	maps.Copy(schema["properties"].(obj), more)
	return obj{"name": name, "served": served, "storage": storage, "schema": obj{"openAPIV3Schema": schema}}
}

// defineVersions changes the CRD's versions and waits until the last of them is served.
func defineVersions(t testing.TB, p *world.Plane, versions ...obj) {
	t.Helper()
	if _, err := p.API.MergePatch(t.Context(), widgetsCRD, obj{"spec": obj{"versions": versions}}); err != nil {
		t.Fatal(err)
	}
	last := versions[len(versions)-1]["name"].(string)
	wait.Eventually(t, time.Minute, func() error {
		_, err := p.API.Get(t.Context(), "/apis/"+oracle.WidgetsGroup+"/"+last+"/widgets")
		return err
	})
}

// removeWidgets deletes the CRD, and with it all widgets.
func removeWidgets(t testing.TB, p *world.Plane) {
	t.Helper()
	if err := p.API.Remove(t.Context(), widgetsCRD); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		_, err := p.API.Get(t.Context(), widgetsCRD)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the CRD is still there: %w", err)
	})
}

// makeWidgets creates or changes n widgets, beginning with w-0.
func makeWidgets(t testing.TB, p *world.Plane, namespace, text string, n int) {
	t.Helper()
	all := world.Collection(oracle.Widgets, namespace)
	for i := range n {
		widget := obj{
			"apiVersion": oracle.WidgetsGroup + "/v1",
			"kind":       "Widget",
			"metadata":   world.Meta(fmt.Sprint("w-", i)),
			"spec":       obj{"text": text},
		}
		wait.Eventually(t, time.Minute, func() error { // A new CRD is not served at once.
			_, err := p.API.Create(t.Context(), all, widget)
			if apierrors.IsAlreadyExists(err) {
				_, err = p.API.MergePatch(t.Context(), fmt.Sprintf("%s/w-%d", all, i), obj{"spec": widget["spec"]})
			}
			return err
		})
	}
}

// TestDefinitionChanged changes the CRD of an observed resource, and deletes it and creates it
// again, while the agent runs and while it is down.
func TestDefinitionChanged(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "definition"
	s := world.StageOn(t, world.StartPlane(t, controlplane.Options{NoControllerManager: true}), world.Luck())
	s.NewNamespace(t, namespace)
	makeWidgets(t, s.Plane, namespace, "first", 5)
	s.Begin(t, world.AgentConfig{Watch: "  - resources: [" + oracle.Widgets + "]"})
	s.Stream.Completed(t, oracle.Widgets)
	// judged checks that every record is on the bus, as far as the history is available.
	judged := func(t *testing.T) oracle.Verdict {
		t.Helper()
		// A resource that is defined while the agent runs begins with an empty snapshot.
		got := s.Judge(t, func(started *oracle.Record) bool { return started.Objects == 0 }, oracle.Widgets)
		for _, g := range got.Gaps {
			t.Logf("gap %d-%d, %s, recovered %t", g.From, g.To, g.Reason, g.Recovered)
		}
		return got
	}
	change := func(i int) {
		makeWidgets(t, s.Plane, namespace, fmt.Sprint("before ", i), 5)
		defineVersions(t, s.Plane, widgetVersion("v1", true, true, obj{fmt.Sprint("more", i): obj{"type": "string"}}))
		makeWidgets(t, s.Plane, namespace, fmt.Sprint("after ", i), 5)
		s.Losses = append(s.Losses, oracle.Loss{Rev: s.Now(t)})
	}
	t.Run("spec changed, agent running", func(t *testing.T) {
		change(1)
		if got := judged(t); got.InGaps > 0 {
			oracle.Fail(t, "%d records are missing", got.InGaps)
		}
	})
	t.Run("spec changed, agent down", func(t *testing.T) {
		s.StopAgent(t)
		change(2)
		s.Agent.Again(t)
		if got := judged(t); got.InGaps > 0 {
			oracle.Fail(t, "%d records are missing", got.InGaps)
		}
	})
	t.Run("deleted and made again, agent running", func(t *testing.T) {
		removeWidgets(t, s.Plane)
		s.Losses = append(s.Losses, oracle.Loss{Rev: s.Now(t), Final: true})
		if got := judged(t); got.InGaps > 0 { // All deletions are on the bus.
			oracle.Fail(t, "%d records are missing", got.InGaps)
		}
		if err := s.NewWidgets(t.Context()); err != nil {
			t.Fatal(err)
		}
		makeWidgets(t, s.Plane, namespace, "again", 4)
		makeWidgets(t, s.Plane, namespace, "and changed", 4)
		s.Losses = append(s.Losses, oracle.Loss{Rev: s.Now(t), Final: true})
		judged(t)
	})
	t.Run("deleted and made again, agent down", func(t *testing.T) {
		s.StopAgent(t)
		removeWidgets(t, s.Plane)
		if err := s.NewWidgets(t.Context()); err != nil {
			t.Fatal(err)
		}
		makeWidgets(t, s.Plane, namespace, "once more", 3)
		s.Losses = append(s.Losses, oracle.Loss{Rev: s.Now(t), Final: true})
		s.Agent.Again(t)
		judged(t)
		makeWidgets(t, s.Plane, namespace, "live", 3)
		judged(t)
	})
	t.Run("deleted while the agent is down, made again while it runs", func(t *testing.T) {
		s.StopAgent(t)
		removeWidgets(t, s.Plane)
		s.Agent.Again(t)
		world.Pass(t.Context(), 2*time.Second)
		if err := s.NewWidgets(t.Context()); err != nil {
			t.Fatal(err)
		}
		makeWidgets(t, s.Plane, namespace, "at last", 3)
		s.Losses = append(s.Losses, oracle.Loss{Rev: s.Now(t), Final: true})
		judged(t)
	})
}

// TestServedVersionChanged makes the API server serve a resource in another version than the one in
// the checkpoint.
func TestServedVersionChanged(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "served"
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	removeWidgets(t, p)
	crd := obj{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": obj{
			"name": oracle.Widgets,
		},
		"spec": obj{
			"group": oracle.WidgetsGroup, "scope": "Namespaced",
			"names":    obj{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []obj{widgetVersion("v1beta1", true, true, nil)},
		},
	}
	if _, err := p.API.Create(t.Context(), strings.TrimSuffix(widgetsCRD, "/"+oracle.Widgets), crd); err != nil {
		t.Fatal(err)
	}
	s := world.StageOn(t, p, world.Luck())
	s.NewNamespace(t, namespace)
	all := func(version string) string {
		return "/apis/" + oracle.WidgetsGroup + "/" + version + "/namespaces/" + namespace + "/widgets"
	}
	write := func(version, name, text string) uint64 {
		t.Helper()
		var raw []byte
		wait.Eventually(t, time.Minute, func() (err error) {
			widget := obj{
				"apiVersion": oracle.WidgetsGroup + "/" + version,
				"kind":       "Widget",
				"metadata":   world.Meta(name),
				"spec":       obj{"text": text},
			}
			raw, err = p.API.Create(t.Context(), all(version), widget)
			if apierrors.IsAlreadyExists(err) {
				raw, err = p.API.MergePatch(t.Context(), all(version)+"/"+name, obj{"spec": obj{"text": text}})
			}
			return err
		})
		v, err := oracle.ReadVersion(oracle.Widgets, 0, raw)
		if err != nil {
			t.Fatal(err)
		}
		return v.Rev
	}
	write("v1beta1", "a", "first")
	write("v1beta1", "b", "first")
	s.Begin(t, world.AgentConfig{Watch: "  - resources: [" + oracle.Widgets + "]"})
	s.Stream.Completed(t, oracle.Widgets)
	seen := func(rev uint64) *oracle.Record {
		t.Helper()
		return s.Await(t, fmt.Sprint("the event of revision ", rev), func(rec *oracle.Record) bool {
			return rec.Rev == rev && rec.Op != "" && rec.Op != oracle.Read
		})
	}
	seen(write("v1beta1", "a", "second"))
	s.StopAgent(t)
	n := len(s.Stream.All())
	missed := write("v1beta1", "b", "while it was down")
	defineVersions(t, p, widgetVersion("v1beta1", false, false, nil), widgetVersion("v1", true, true, nil))
	s.Agent.Again(t)
	seen(missed)
	last := seen(write("v1", "a", "third"))
	if last.Op != oracle.Updated || last.Before != oracle.Present {
		oracle.Fail(t, "%s is op %s with %s before, want an update", last.ID, last.Op, last.Before)
	}
	var ops []string
	for _, rec := range s.Since(n) {
		for _, problem := range rec.Problems {
			oracle.Fail(t, "%s: %s", rec.ID, problem)
		}
		ops = append(ops, rec.Op+rec.Stream)
		if rec.Stream == oracle.Gap &&
			(rec.Reason != oracle.SelectionChanged && rec.Reason != oracle.Expired || !rec.Recovered) {
			oracle.Fail(t, "gap %s, %s, recovered %t", rec.ID, rec.Reason, rec.Recovered)
		}
	}
	// A changed definition ends every watch with a 410: the gap may be followed by a snapshot.
	if len(ops) == 0 || ops[0] != oracle.Gap {
		oracle.Fail(t,
			"records after the restart: %v, want a gap first, for before is no longer in the form of the last after",
			ops)
	}
}

// TestSelectionChanged restarts an agent with another selection. Newly selected objects are read,
// and objects that are no longer selected have left.
func TestSelectionChanged(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "selection"
	p := world.SharedPlane(t)
	for _, tc := range []struct {
		name, first, second string
		read, left          []string
	}{
		{
			"other labels", "{ns}, labelSelector: team=payments", "{ns}, labelSelector: team=search",
			[]string{"search-0", "search-1"},
			[]string{"payments-0", "payments-1"},
		},
		{
			"from labels to all", "{ns}, labelSelector: team=payments", "{ns}",
			[]string{"search-0", "search-1", "payments-0", "payments-1"},
			nil,
		},
		{"from all to labels", "{ns}", "{ns}, labelSelector: team=payments", []string{
			"payments-0", "payments-1",
		}, []string{"search-0", "search-1"}},
		{"another namespace", "{ns}", "[default]", nil, []string{"search-0", "search-1", "payments-0", "payments-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ns := namespace + "-" + strings.ReplaceAll(tc.name, " ", "-")
			s := world.StageOn(t, p, world.Luck())
			s.NewNamespace(t, ns)
			fill := func(text string) string {
				text = strings.ReplaceAll(text, "{ns}", "["+ns+"]")
				return "  - {resources: [configmaps], namespaces: " + text + "}"
			}
			for _, name := range []string{"search-0", "search-1", "payments-0", "payments-1"} {
				label, _, _ := strings.Cut(name, "-")
				cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": world.Meta(name, "labels", obj{
					"team": label,
				})}
				if _, err := p.API.Create(t.Context(), world.Collection("configmaps", ns), cm); err != nil {
					t.Fatal(err)
				}
			}
			s.Begin(t, world.AgentConfig{Watch: fill(tc.first)})
			s.Stream.Completed(t, "configmaps")
			s.Agent.Captured(t)
			s.StopAgent(t)
			n := len(s.Stream.All())
			s.Agent.Reconfigure(t, fill(tc.first), fill(tc.second))
			s.Agent.Again(t)
			s.Agent.Ready(t)
			var gotRead, gotLeft []string
			sorted := func(list []string) []string {
				list = slices.Clone(list)
				slices.Sort(list)
				return list
			}
			err := wait.For(t.Context(), time.Minute, func() error {
				gotRead, gotLeft = nil, nil
				gaps, completed := 0, 0
				for _, rec := range s.Since(n) {
					switch {
					case rec.Key.Name == "kube-root-ca.crt": // The controller manager's.
					case rec.Op == oracle.Read && rec.Key.Namespace == ns:
						gotRead = append(gotRead, rec.Key.Name)
					case rec.Op == oracle.Left:
						gotLeft = append(gotLeft, rec.Key.Name)
					case rec.Stream == oracle.Gap && rec.Reason == oracle.SelectionChanged:
						gaps++
					case rec.Stream == oracle.SnapshotCompleted:
						completed++
					}
				}
				if !slices.Equal(sorted(gotRead), sorted(tc.read)) || !slices.Equal(sorted(gotLeft), sorted(tc.left)) ||
					gaps != 1 || completed != 1 {
					return errors.New("not yet")
				}
				return nil
			})
			if err != nil {
				oracle.Fail(t, "read %v, want %v; left %v, want %v; after the restart: %s", gotRead, tc.read, gotLeft,
					tc.left, countOps(s.Since(n)))
			}
			for _, rec := range s.Since(n) {
				for _, problem := range rec.Problems {
					oracle.Fail(t, "%s: %s", rec.ID, problem)
				}
			}
		})
	}
}
