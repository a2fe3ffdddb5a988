package config_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/config"
)

// thing has the properties of an object that rules match.
type thing struct {
	group, version, resource, namespace string
	labels                              labels.Set
}

// things returns objects of resources, groups and versions that rules name, and of others that no
// rule names.
func things() []thing {
	var all []thing
	for _, group := range []string{"", "events.k8s.io", "a.example.com", "b.example.com", "unnamed.example.com"} {
		for _, resource := range []string{"pods", "events", "nodes", "widgets", "unnamed"} {
			for _, version := range []string{"v1", "v2", "v9"} {
				for _, namespace := range []string{"", "shop", "web", "unnamed"} {
					for _, set := range []labels.Set{{}, {"a": "1"}, {"b": "1"}, {"a": "1", "b": "1"}} {
						if (resource == "pods") != (namespace != "") && (resource == "pods" || resource == "nodes") &&
							group == "" {
							continue // pods have a namespace, nodes none
						}
						all = append(all, thing{group, version, resource, namespace, set})
					}
				}
			}
		}
	}
	return all
}

func (o thing) in(r *config.Rule) bool {
	selector, err := labels.Parse(r.LabelSelector)
	return err == nil && r.Takes(o.group, o.version, o.resource) && r.Namespaces.Match(o.namespace) &&
		selector.Matches(o.labels)
}

// TestTakenBefore compares the result with a check of every object. A rule that takes any object is
// never refused. If rules have neither namespaces nor selectors, a rule that takes none is always
// refused.
func TestTakenBefore(t *testing.T) {
	all := things()
	pattern := func(t *rapid.T, label string) config.ResourcePattern {
		var p config.ResourcePattern
		text := rapid.SampledFrom([]string{
			"*", "*.", "*.a.example.com", "*.b.example.com", "pods", "nodes", "events", "events.",
			"events.events.k8s.io", "widgets",
			"widgets.a.example.com", "widgets.b.example.com", "widgets.v1.a.example.com", "widgets.v2.a.example.com",
			"pods.v1.",
		}).Draw(t, label)
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	refused, taking := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		limited := rapid.Bool().Draw(t, "limited")
		rules := make([]config.Rule, rapid.IntRange(1, 5).Draw(t, "rules"))
		for i := range rules {
			r := &rules[i]
			for range rapid.IntRange(1, 3).Draw(t, "resources") {
				r.Resources = append(r.Resources, pattern(t, "resource"))
			}
			for range rapid.IntRange(0, 2).Draw(t, "excepts") {
				r.Except = append(r.Except, pattern(t, "except"))
			}
			if limited {
				r.Namespaces = rapid.SampledFrom([]config.Namespaces{
					nil, {"*"}, {"shop"}, {"web", "shop"}, {"*", "!shop"}, {"!shop", "*"}, {"s*"},
				}).Draw(t, "namespaces")
				r.LabelSelector = rapid.SampledFrom([]string{"", "a", "a=1", "b,a", "a,b", "!a"}).Draw(t, "labels")
			}
		}
		last := len(rules) - 1
		for _, p := range rules[last].Resources {
			_, got := config.TakenBefore(rules, last, p)
			only := config.Rule{Resources: []config.ResourcePattern{p}}
			i := slices.IndexFunc(all, func(o thing) bool {
				return only.Takes(o.group, o.version, o.resource) && o.in(&rules[last]) &&
					!slices.ContainsFunc(rules[:last], func(r config.Rule) bool { return o.in(&r) })
			})
			switch {
			case i >= 0 && got:
				t.Fatalf("rule %d is said to take nothing as %s, and takes %+v:\n%s", last, p, all[i], written(rules))
			case i < 0 && !got && !limited:
				t.Fatalf("rule %d takes nothing as %s, which is not said:\n%s", last, p, written(rules))
			case got:
				refused++
			default:
				taking++
			}
		}
	})
	if refused == 0 || taking == 0 {
		t.Errorf("%d patterns took nothing, %d something: nothing was compared", refused, taking)
	}
}

func written(rules []config.Rule) string {
	var b strings.Builder
	for _, r := range rules {
		for _, p := range r.Resources {
			b.WriteString(p.String() + " ")
		}
		b.WriteString("except")
		for _, p := range r.Except {
			b.WriteString(" " + p.String())
		}
		for _, n := range r.Namespaces {
			b.WriteString(" ns " + string(n))
		}
		b.WriteString(" labels " + r.LabelSelector + "\n")
	}
	return b.String()
}
