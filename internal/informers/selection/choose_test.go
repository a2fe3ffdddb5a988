package selection_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

type named string

func (n named) Match(group, version, resource string) bool {
	r := &object.Resource{Group: group, Version: version, Name: resource}
	return n == "*" || string(n) == r.String() || string(n) == resource+"."+version+"."+group
}

func (n named) String() string { return string(n) }

func servedAs(group, name, kind string, namespaced bool, versions ...string) selection.APIResource {
	a := selection.APIResource{Group: group, Name: name}
	for _, v := range versions {
		a.Versions = append(a.Versions, object.Resource{
			Group:      group,
			Version:    v,
			Name:       name,
			Kind:       kind,
			Namespaced: namespaced,
		})
	}
	return a
}

func TestChoose(t *testing.T) {
	all := []selection.APIResource{
		servedAs("", "pods", "Pod", true, "v1"), servedAs("", "nodes", "Node", false, "v1"),
		servedAs("", "events", "Event", true, "v1"),
		servedAs("apps", "deployments", "Deployment", true, "v1", "v1beta1"),
		servedAs("events.k8s.io", "events", "Event", true, "v1"),
	}
	for _, test := range []struct {
		name     string
		rules    []selection.Rule
		served   []selection.APIResource
		unknown  []string
		taken    map[schema.GroupResource]bool
		want     []string
		unserved []string
	}{
		{
			name:  "no object under two names, the preferred version",
			rules: []selection.Rule{{Resources: []selection.Pattern{named("*")}, AllNamespaces: true}},
			want:  []string{"v1 pods", "v1 nodes", "v1 events", "apps/v1 deployments"},
		},
		{
			name:  "a version that is asked for",
			rules: []selection.Rule{{Resources: []selection.Pattern{named("deployments.v1beta1.apps")}}},
			want:  []string{"apps/v1beta1 deployments"},
		},
		{
			name:  "cluster-scoped resources only where all namespaces are meant",
			rules: []selection.Rule{{Resources: []selection.Pattern{named("nodes"), named("pods")}}},
			want:  []string{"v1 pods"},
		},
		{
			name: "every rule that can take objects of a resource, except leaves it to the next",
			rules: []selection.Rule{
				{Resources: []selection.Pattern{named("*")}, Except: []selection.Pattern{
					named("pods"),
				}, AllNamespaces: true},
				{Resources: []selection.Pattern{named("pods"), named("nodes")}, AllNamespaces: true},
			},
			want: []string{"v1 nodes", "v1 events", "apps/v1 deployments", "v1 pods"},
		},
		{
			name:     "what is not served",
			rules:    []selection.Rule{{Resources: []selection.Pattern{named("widgets.example.com"), named("pods")}}},
			want:     []string{"v1 pods"},
			unserved: []string{"widgets.example.com"},
		},
		{
			name:   "the alias alone",
			rules:  []selection.Rule{{Resources: []selection.Pattern{named("*")}, AllNamespaces: true}},
			served: all[4:],
			want:   []string{"events.k8s.io/v1 events"},
		},
		{
			name:    "the alias alone, while the core group cannot be told",
			rules:   []selection.Rule{{Resources: []selection.Pattern{named("*")}, AllNamespaces: true}},
			served:  all[4:],
			unknown: []string{"v1"},
		},
		{
			name:  "what has an informer under its other name",
			rules: []selection.Rule{{Resources: []selection.Pattern{named("*")}}},
			taken: map[schema.GroupResource]bool{{Group: "events.k8s.io", Resource: "events"}: true},
			want:  []string{"v1 pods", "apps/v1 deployments", "events.k8s.io/v1 events"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.served == nil {
				test.served = all
			}
			taken := maps.Clone(test.taken)
			if taken == nil {
				taken = map[schema.GroupResource]bool{}
			}
			got, unserved := compile(t, test.rules...).Choose(test.served, test.unknown, taken)
			var names []string
			for _, c := range got {
				names = append(names, c.Resource.APIVersion()+" "+c.Resource.Name)
			}
			if d := cmp.Diff(test.want, names); d != "" {
				t.Errorf("chosen (-want +got):\n%s", d)
			}
			if d := cmp.Diff(test.unserved, unserved); d != "" {
				t.Errorf("unserved (-want +got):\n%s", d)
			}
		})
	}
}

// A rule that matches the other name of a chosen resource takes the same objects, unless it excepts
// the chosen name.
func TestChooseByOtherName(t *testing.T) {
	both := []selection.APIResource{
		servedAs("", "events", "Event", true, "v1"), servedAs("events.k8s.io", "events", "Event", true, "v1"),
	}
	for name, test := range map[string]struct {
		second selection.Rule
		want   int
	}{
		"takes": {selection.Rule{Resources: []selection.Pattern{named("events.events.k8s.io")}}, 2},
		"excepts": {selection.Rule{Resources: []selection.Pattern{named("*")}, Except: []selection.Pattern{
			named("events"),
		}}, 1},
	} {
		got, _ := compile(t, selection.Rule{Resources: []selection.Pattern{
			named("events"),
		}}, test.second).Choose(both, nil, nil)
		if len(got) != 1 || len(got[0].Rules) != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Current finds the version to observe: the one that is asked for, or else the preferred one.
func TestCurrent(t *testing.T) {
	all := selection.NewIndex([]selection.APIResource{
		servedAs("", "pods", "Pod", true, "v1"), servedAs("apps", "deployments", "Deployment", true, "v1", "v1beta1"),
	})
	for version, want := range map[string]string{"v1": "v1", "v1beta1": "v1beta1", "v0": "v1"} {
		got, ok := all.Current(&object.Resource{
			Group:      "apps",
			Version:    version,
			Name:       "deployments",
			Kind:       "Deployment",
			Namespaced: true,
		})
		if !ok || got.Version != want {
			t.Errorf("%s: %v, want %s", version, got, want)
		}
	}
	if got, ok := all.Current(&object.Resource{Version: "v1", Name: "deployments"}); ok {
		t.Errorf("not served: %v", got)
	}
}

// A group that discovery cannot read holds back no other group.
func TestGroupKnown(t *testing.T) {
	for _, test := range []struct {
		unknown     string
		of, aliases bool // example.com
	}{
		{"metrics.k8s.io/v1beta1", true, true},
		{"example.com/v2", false, true},
		{"v1", true, false},
		{"events.k8s.io/v1", true, false},
		{"networking.k8s.io/v1", true, false},
		{"not/a/group", false, false},
	} {
		unknown := []string{test.unknown}
		if got := selection.GroupKnown(unknown, "example.com"); got != test.of {
			t.Errorf("%s unknown: knows example.com: %t", test.unknown, got)
		}
		if got := selection.AliasesKnown(unknown); got != test.aliases {
			t.Errorf("%s unknown: knows all aliases: %t", test.unknown, got)
		}
	}
	if !selection.GroupKnown(nil, "") || !selection.AliasesKnown(nil) {
		t.Error("nothing is unknown, and something is not known")
	}
}
