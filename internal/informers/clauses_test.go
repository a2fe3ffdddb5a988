package informers_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// rule takes configmaps of all namespaces.
func rule(change func(*selection.Rule)) selection.Rule {
	r := selection.Rule{Resources: []selection.Pattern{pattern("configmaps")}, Namespaces: func(string) bool {
		return true
	}, AllNamespaces: true}
	if change != nil {
		change(&r)
	}
	return r
}

func inNamespaces(names ...string) func(*selection.Rule) {
	return func(r *selection.Rule) {
		r.AllNamespaces, r.Names = false, names
		r.Namespaces = func(ns string) bool { return strings.Contains(","+strings.Join(names, ",")+",", ","+ns+",") }
	}
}

func selected(labels, fields string) func(*selection.Rule) {
	return func(r *selection.Rule) { r.LabelSelector, r.FieldSelector = labels, fields }
}

// Rules are tried in order for each object. The agent evaluates the selectors, and detects which
// objects enter, leave or move between rules.
func TestRulesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		red, blue := map[string]string{"colour": "red"}, map[string]string{"colour": "blue"}
		s := newAPIServer(t)
		s.put("a", "1", red)
		s.put("b", "kept", blue)
		s.put("c", "1", blue)
		var set *informers.Manager
		set, rec, _ := start(t, s, func(o *informers.Options) {
			hidden := rule(selected("", "data.value=kept"))
			hidden.Redact = []string{"metadata.labels"}
			o.Rules = []selection.Rule{rule(selected("colour=red", "")), hidden}
		})
		want := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→kept", "snapshot.completed 2"}
		rec.wait(t, want...)
		s.put("c", "2", blue)
		s.put("c", "kept", blue) // entered: the second rule takes it
		s.put("b", "kept", red)  // from one rule to another: it stays
		s.put("b", "3", red)
		s.put("b", "kept", blue)
		s.put("a", "2", blue) // left
		s.put("a", "3", blue)
		s.delete("a")
		s.put("d", "1", blue)
		s.delete("d")
		s.put("d", "1", red)
		s.delete("d")
		s.put("c", "4", blue) // left
		s.put("c", "5", red)  // entered
		s.delete("c")
		want = append(want, "e c uid-3 -→kept", "u b uid-2 kept→kept", "u b uid-2 kept→3", "u b uid-2 3→kept",
			"l a uid-1 1→-",
			"c d uid-5 -→1", "d d uid-5 1→-", "l c uid-3 kept→-", "e c uid-3 -→5", "d c uid-3 5→-")
		rec.wait(t, want...)
		wantScope := "configmaps?any=*?fieldSelector=data.value=kept|*?labelSelector=colour=red"
		if got := set.Status()[0].Scope; got != wantScope {
			t.Errorf("scope %s, want %s", got, wantScope)
		}
		// Each version is redacted by the rule that takes it.
		rec.mu.Lock()
		defer rec.mu.Unlock()
		for _, d := range rec.deltas {
			for _, o := range []*object.Object{d.Before, d.After} {
				if o == nil {
					continue
				}
				raw, err := o.AppendJSON(nil)
				if err != nil {
					t.Fatal(err)
				}
				if hidden, byFirst := !strings.Contains(string(raw), `"labels"`),
					strings.Contains(string(raw), `"red"`); hidden == byFirst {
					t.Errorf("%s: redacted %v: %s", short(d), hidden, raw)
				}
				if strings.Contains(string(raw), "managedFields") {
					t.Errorf("managedFields: %s", raw)
				}
			}
		}
	})
}

// The agent applies its selectors to each version that it recovers after a relist.
func TestRulesInOrderRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		red, blue := map[string]string{"colour": "red"}, map[string]string{"colour": "blue"}
		s := newAPIServer(t)
		for _, name := range []string{"gone", "left", "same"} {
			s.put(name, "1", red)
		}
		s.put("enters", "1", blue)
		_, rec, _ := start(t, s, func(o *informers.Options) {
			o.Rules = []selection.Rule{rule(selected("colour=red", "")), rule(selected("", "data.value=kept"))}
		})
		want := []string{
			"snapshot.started 3", "r gone uid-1 -→1", "r left uid-2 -→1", "r same uid-3 -→1", "snapshot.completed 3",
		}
		rec.wait(t, want...)
		s.mu.Lock()
		rv := s.rv
		s.mu.Unlock()
		s.gone(rv + 6)
		s.put("same", "kept", blue)
		s.put("enters", "2", red)
		s.put("left", "2", red)
		s.put("left", "3", blue)
		s.put("gone", "2", blue)
		s.delete("gone")
		s.CloseClientConnections()
		rec.waitPerName(t, append(want, "gap 0 expired", "u same uid-3 1→kept", "e enters uid-4 1→2",
			"u left uid-2 1→2", "l left uid-2 2→-", "l gone uid-1 1→-")...)
	})
}

// A plan names all rules that can take objects of a resource.
func TestPlanSeveralRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		set, _, _ := start(t, s, func(o *informers.Options) {
			secrets := rule(nil)
			secrets.Resources = []selection.Pattern{pattern("secrets")}
			o.Rules = []selection.Rule{rule(selected("a=b", "")), secrets, rule(nil)}
		})
		p, err := set.Plan(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]int{}
		for _, r := range p.Resources {
			got[r.Resource.String()] = r.Rules
		}
		if d := cmp.Diff(map[string][]int{"configmaps": {0, 2}, "secrets": {1}}, got); d != "" {
			t.Errorf("rules by resource (-want +got):\n%s", d)
		}
	})
}
