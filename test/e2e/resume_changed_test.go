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
)

const widgetsCRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + widgets

// widgetVersion is one of spec.versions of the CRD.
func widgetVersion(name string, served, storage bool, more obj) obj {
	schema := obj{
		"type": "object", "properties": obj{"spec": obj{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
	}
	maps.Copy(schema["properties"].(obj), more)
	return obj{"name": name, "served": served, "storage": storage, "schema": obj{"openAPIV3Schema": schema}}
}

// defineVersions changes the CRD's versions and waits until the last of them is served.
func (p *plane) defineVersions(t testing.TB, versions ...obj) {
	t.Helper()
	if _, err := p.api.mergePatch(t.Context(), widgetsCRD, obj{"spec": obj{"versions": versions}}); err != nil {
		t.Fatal(err)
	}
	last := versions[len(versions)-1]["name"].(string)
	eventually(t, time.Minute, func() error {
		_, err := p.api.get(t.Context(), "/apis/"+widgetsGroup+"/"+last+"/widgets")
		return err
	})
}

// removeWidgets deletes the CRD, and all widgets with it.
func (p *plane) removeWidgets(t testing.TB) {
	t.Helper()
	if err := p.api.remove(t.Context(), widgetsCRD); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		_, err := p.api.get(t.Context(), widgetsCRD)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the CRD is still there: %w", err)
	})
}

// makeWidgets makes or changes widgets w-0 and so on.
func (p *plane) makeWidgets(t testing.TB, namespace, text string, n int) {
	t.Helper()
	all := collection(widgets, namespace)
	for i := range n {
		widget := obj{
			"apiVersion": widgetsGroup + "/v1", "kind": "Widget", "metadata": meta(fmt.Sprint("w-", i)), "spec": obj{"text": text},
		}
		eventually(t, time.Minute, func() error { // A new CRD is not served at once.
			_, err := p.api.create(t.Context(), all, widget)
			if apierrors.IsAlreadyExists(err) {
				_, err = p.api.mergePatch(t.Context(), fmt.Sprintf("%s/w-%d", all, i), obj{"spec": widget["spec"]})
			}
			return err
		})
	}
}

// TestDefinitionChanged changes the CRD of what is observed, and deletes it and makes it again, with the agent running and
// down.
func TestDefinitionChanged(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "definition"
	s := stageOn(t, startPlane(t, controlplane.Options{NoControllerManager: true}), luck())
	s.newNamespace(t, namespace)
	s.makeWidgets(t, namespace, "first", 5)
	s.begin(t, agentConfig{Watch: "  - resources: [" + widgets + "]"})
	s.stream.completed(t, widgets)
	// judged is whether all is there, as far as history can tell.
	judged := func(t *testing.T) verdict {
		t.Helper()
		// What is defined while the agent looks on begins with a snapshot of nothing.
		got := s.judge(t, func(started *record) bool { return started.Objects == 0 }, widgets)
		for _, g := range got.Gaps {
			t.Logf("gap %d-%d, %s, recovered %t", g.From, g.To, g.Reason, g.Recovered)
		}
		return got
	}
	change := func(i int) {
		s.makeWidgets(t, namespace, fmt.Sprint("before ", i), 5)
		s.defineVersions(t, widgetVersion("v1", true, true, obj{fmt.Sprint("more", i): obj{"type": "string"}}))
		s.makeWidgets(t, namespace, fmt.Sprint("after ", i), 5)
		s.losses = append(s.losses, loss{Rev: s.now(t)})
	}
	t.Run("spec changed, agent running", func(t *testing.T) {
		change(1)
		if got := judged(t); got.InGaps > 0 {
			t.Errorf("%d records are missing", got.InGaps)
		}
	})
	t.Run("spec changed, agent down", func(t *testing.T) {
		s.stopAgent(t)
		change(2)
		s.agent.again(t)
		if got := judged(t); got.InGaps > 0 {
			t.Errorf("%d records are missing", got.InGaps)
		}
	})
	t.Run("deleted and made again, agent running", func(t *testing.T) {
		s.removeWidgets(t)
		s.losses = append(s.losses, loss{Rev: s.now(t), Final: true})
		if got := judged(t); got.InGaps > 0 { // All deletions are told.
			t.Errorf("%d records are missing", got.InGaps)
		}
		if err := s.newWidgets(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.makeWidgets(t, namespace, "again", 4)
		s.makeWidgets(t, namespace, "and changed", 4)
		s.losses = append(s.losses, loss{Rev: s.now(t), Final: true})
		judged(t)
	})
	t.Run("deleted and made again, agent down", func(t *testing.T) {
		s.stopAgent(t)
		s.removeWidgets(t)
		if err := s.newWidgets(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.makeWidgets(t, namespace, "once more", 3)
		s.losses = append(s.losses, loss{Rev: s.now(t), Final: true})
		s.agent.again(t)
		judged(t)
		s.makeWidgets(t, namespace, "live", 3)
		judged(t)
	})
	t.Run("deleted while the agent is down, made again while it runs", func(t *testing.T) {
		s.stopAgent(t)
		s.removeWidgets(t)
		s.agent.again(t)
		pass(t.Context(), 2*time.Second)
		if err := s.newWidgets(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.makeWidgets(t, namespace, "at last", 3)
		s.losses = append(s.losses, loss{Rev: s.now(t), Final: true})
		judged(t)
	})
}

// TestServedVersionChanged has a resource be served in another version than the one that the checkpoint is of.
func TestServedVersionChanged(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "served"
	p := startPlane(t, controlplane.Options{NoControllerManager: true})
	p.removeWidgets(t)
	crd := obj{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": obj{"name": widgets},
		"spec": obj{
			"group": widgetsGroup, "scope": "Namespaced",
			"names":    obj{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []obj{widgetVersion("v1beta1", true, true, nil)},
		},
	}
	if _, err := p.api.create(t.Context(), strings.TrimSuffix(widgetsCRD, "/"+widgets), crd); err != nil {
		t.Fatal(err)
	}
	s := stageOn(t, p, luck())
	s.newNamespace(t, namespace)
	all := func(version string) string {
		return "/apis/" + widgetsGroup + "/" + version + "/namespaces/" + namespace + "/widgets"
	}
	write := func(version, name, text string) uint64 {
		t.Helper()
		var raw []byte
		eventually(t, time.Minute, func() (err error) {
			widget := obj{"apiVersion": widgetsGroup + "/" + version, "kind": "Widget", "metadata": meta(name), "spec": obj{"text": text}}
			raw, err = p.api.create(t.Context(), all(version), widget)
			if apierrors.IsAlreadyExists(err) {
				raw, err = p.api.mergePatch(t.Context(), all(version)+"/"+name, obj{"spec": obj{"text": text}})
			}
			return err
		})
		v, err := readVersion(widgets, 0, raw)
		if err != nil {
			t.Fatal(err)
		}
		return v.Rev
	}
	write("v1beta1", "a", "first")
	write("v1beta1", "b", "first")
	s.begin(t, agentConfig{Watch: "  - resources: [" + widgets + "]"})
	s.stream.completed(t, widgets)
	seen := func(rev uint64) *record {
		t.Helper()
		return s.await(t, fmt.Sprint("the event of revision ", rev), func(rec *record) bool { return rec.Rev == rev && rec.Op != "" && rec.Op != read })
	}
	seen(write("v1beta1", "a", "second"))
	s.stopAgent(t)
	n := len(s.stream.all())
	missed := write("v1beta1", "b", "while it was down")
	p.defineVersions(t, widgetVersion("v1beta1", false, false, nil), widgetVersion("v1", true, true, nil))
	s.agent.again(t)
	seen(missed)
	last := seen(write("v1", "a", "third"))
	if last.Op != updated || last.Before != present {
		t.Errorf("%s is op %s with %s before, want an update", last.ID, last.Op, last.Before)
	}
	var ops []string
	for _, rec := range s.since(n) {
		for _, problem := range rec.Problems {
			t.Errorf("%s: %s", rec.ID, problem)
		}
		ops = append(ops, rec.Op+rec.Stream)
		if rec.Stream == gap && (rec.Reason != selectionChanged && rec.Reason != expired || !rec.Recovered) {
			t.Errorf("gap %s, %s, recovered %t", rec.ID, rec.Reason, rec.Recovered)
		}
	}
	// A definition that was changed ends every watch with a 410: behind that gap there may be a snapshot.
	if len(ops) == 0 || ops[0] != gap {
		t.Errorf("records behind the restart: %v, want a gap first, for before is no longer in the form of the last after", ops)
	}
}

// TestSelectionChanged starts an agent with another selection than before: what is newly selected is read, what no longer is
// has left.
func TestSelectionChanged(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "selection"
	p := sharedPlane(t)
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
		{"from all to labels", "{ns}", "{ns}, labelSelector: team=payments", []string{"payments-0", "payments-1"}, []string{"search-0", "search-1"}},
		{"another namespace", "{ns}", "[default]", nil, []string{"search-0", "search-1", "payments-0", "payments-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ns := namespace + "-" + strings.ReplaceAll(tc.name, " ", "-")
			s := stageOn(t, p, luck())
			s.newNamespace(t, ns)
			fill := func(text string) string {
				text = strings.ReplaceAll(text, "{ns}", "["+ns+"]")
				return "  - {resources: [configmaps], namespaces: " + text + "}"
			}
			for _, name := range []string{"search-0", "search-1", "payments-0", "payments-1"} {
				label, _, _ := strings.Cut(name, "-")
				cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, "labels", obj{"team": label})}
				if _, err := p.api.create(t.Context(), collection("configmaps", ns), cm); err != nil {
					t.Fatal(err)
				}
			}
			s.begin(t, agentConfig{Watch: fill(tc.first)})
			s.stream.completed(t, "configmaps")
			s.stopAgent(t)
			n := len(s.stream.all())
			s.agent.reconfigure(t, fill(tc.first), fill(tc.second))
			s.agent.again(t)
			s.agent.ready(t)
			var gotRead, gotLeft []string
			sorted := func(list []string) []string {
				list = slices.Clone(list)
				slices.Sort(list)
				return list
			}
			err := await(t.Context(), 20*time.Second, func() error {
				gotRead, gotLeft = nil, nil
				gaps, completed := 0, 0
				for _, rec := range s.since(n) {
					switch {
					case rec.Key.Name == "kube-root-ca.crt": // The controller manager's.
					case rec.Op == read && rec.Key.Namespace == ns:
						gotRead = append(gotRead, rec.Key.Name)
					case rec.Op == left:
						gotLeft = append(gotLeft, rec.Key.Name)
					case rec.Stream == gap && rec.Reason == selectionChanged:
						gaps++
					case rec.Stream == snapshotCompleted:
						completed++
					}
				}
				if !slices.Equal(sorted(gotRead), sorted(tc.read)) || !slices.Equal(sorted(gotLeft), sorted(tc.left)) || gaps != 1 || completed != 1 {
					return errors.New("not yet")
				}
				return nil
			})
			if err != nil {
				t.Errorf("read %v, want %v; left %v, want %v; behind the restart: %s", gotRead, tc.read, gotLeft, tc.left, countOps(s.since(n)))
			}
			for _, rec := range s.since(n) {
				for _, problem := range rec.Problems {
					t.Errorf("%s: %s", rec.ID, problem)
				}
			}
		})
	}
}
