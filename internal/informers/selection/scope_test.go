package selection_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

func compile(t *testing.T, rules ...selection.Rule) *selection.Selection {
	t.Helper()
	s, err := selection.Compile(selection.Spec{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// scopes returns those of ConfigMaps, by name.
func scopes(t *testing.T, part selection.Part, rules ...selection.Rule) []selection.Scope {
	t.Helper()
	s, err := selection.Compile(selection.Spec{Rules: rules, Part: func(string, string) selection.Part { return part }})
	if err != nil {
		t.Fatal(err)
	}
	chosen, _ := s.Choose([]selection.APIResource{servedAs("", "configmaps", "ConfigMap", true, "v1")}, nil, nil)
	if len(chosen) != 1 {
		t.Fatalf("%d resources are chosen", len(chosen))
	}
	all, err := s.Scopes(&chosen[0])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// rule takes ConfigMaps of all namespaces.
func rule(change func(*selection.Rule)) selection.Rule {
	r := selection.Rule{Resources: []selection.Pattern{named("configmaps")}, Namespaces: func(string) bool {
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
		r.Namespaces = func(ns string) bool { return slices.Contains(names, ns) }
	}
}

func selected(labels, fields string) func(*selection.Rule) {
	return func(r *selection.Rule) { r.LabelSelector, r.FieldSelector = labels, fields }
}

// The scope of several rules has one name whatever their order, and another one for other objects;
// what one rule before takes needs no name.
func TestScopeOfSeveralRules(t *testing.T) {
	globs := func(patterns ...string) func(*selection.Rule) {
		return func(r *selection.Rule) { r.AllNamespaces, r.Patterns = false, patterns }
	}
	for _, test := range []struct {
		name  string
		rules []selection.Rule
		want  []string
	}{
		{"one rule", []selection.Rule{rule(selected("a=b", ""))}, []string{"configmaps?labelSelector=a=b"}},
		{"the second takes the rest", []selection.Rule{rule(selected("a=b", "")), rule(nil)}, []string{"configmaps"}},
		{"the first leaves nothing", []selection.Rule{rule(nil), rule(selected("a=b", ""))}, []string{"configmaps"}},
		{"the same once more", []selection.Rule{rule(selected("a=b", "")), rule(selected("a=b", ""))}, []string{
			"configmaps?labelSelector=a=b",
		}},
		{
			"globs",
			[]selection.Rule{rule(globs("team-*", "!team-x")), rule(globs("shop-*"))},
			[]string{"configmaps?any=shop-*|team-*,!team-x"},
		},
		{
			"globs in another order",
			[]selection.Rule{rule(globs("shop-*")), rule(globs("team-*", "!team-x"))},
			[]string{"configmaps?any=shop-*|team-*,!team-x"},
		},
		{
			"a namespace each",
			[]selection.Rule{rule(inNamespaces("shop")), rule(inNamespaces("other", "shop"))},
			[]string{"configmaps/other", "configmaps/shop"},
		},
		{
			"several in a namespace",
			[]selection.Rule{rule(func(r *selection.Rule) {
				inNamespaces("shop")(r)
				r.LabelSelector = "a=b"
			}), rule(func(r *selection.Rule) {
				inNamespaces("shop", "other")(r)
				r.FieldSelector = "metadata.name=x"
			})},
			[]string{
				"configmaps/other?fieldSelector=metadata.name=x",
				"configmaps/shop?any=*?fieldSelector=metadata.name=x|*?labelSelector=a=b",
			},
		},
		{
			"what all have in common is asked of the API server",
			[]selection.Rule{rule(func(r *selection.Rule) {
				globs("shop-*")(r)
				r.LabelSelector = "a=b"
			}), rule(selected("a=b", "metadata.name=x"))},
			[]string{
				"configmaps?labelSelector=a=b&any=*?labelSelector=a=b&fieldSelector=metadata.name=x|shop-*?labelSelector=a=b",
			},
		},
		{
			"not where they redact otherwise",
			[]selection.Rule{rule(func(r *selection.Rule) {
				globs("shop-*")(r)
				r.LabelSelector, r.Redact = "a=b", []string{"data"}
			}), rule(selected("a=b", ""))},
			[]string{"configmaps?any=*?labelSelector=a=b|shop-*?labelSelector=a=b"},
		},
		{
			"nor fields that the API server may not know",
			[]selection.Rule{rule(func(r *selection.Rule) {
				globs("shop-*")(r)
				r.FieldSelector = "data.x=1"
			}), rule(selected("", "data.x=1"))},
			[]string{"configmaps?any=*?fieldSelector=data.x=1|shop-*?fieldSelector=data.x=1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, scope := range scopes(t, selection.Part{}, test.rules...) {
				got = append(got, scope.Name)
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("scopes (-want +got):\n%s", d)
			}
		})
	}
}
