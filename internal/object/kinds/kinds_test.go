package kinds_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
)

// The types of Kubernetes are the evidence: each kind of a stable version that has lists is in the
// table, by its plural, and the table has no other.
func TestTableHasTheKindsOfKubernetes(t *testing.T) {
	stable := regexp.MustCompile(`^v[0-9]+$`)
	want := map[string]bool{
		"CustomResourceDefinition.apiextensions.k8s.io customresourcedefinitions": true, // of other modules
		"APIService.apiregistration.k8s.io apiservices":                           true,
	}
	known := scheme.Scheme.AllKnownTypes()
	for kind := range known {
		_, hasLists := known[kind.GroupVersion().WithKind(kind.Kind+"List")]
		unwatched := kind.Kind == "ComponentStatus" || kind.Kind == "APIGroup" // without watch, and of discovery
		if !hasLists || unwatched || !stable.MatchString(kind.Version) {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		want[kind.GroupKind().String()+" "+plural.Resource] = true
	}
	got := map[string]bool{}
	for _, plural := range kinds.Plurals() {
		for _, k := range kinds.Of(plural) {
			got[schema.GroupKind{Group: k.Group, Kind: k.Name}.String()+" "+k.Plural] = true
			kind := schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Name}
			if !scheme.Scheme.Recognizes(kind) && k.Group != "apiextensions.k8s.io" &&
				k.Group != "apiregistration.k8s.io" {
				t.Errorf("Kubernetes has no %s", kind)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the kinds of Kubernetes and those of the table (-want +got):\n%s", diff)
	}
}

// A word names one plural: commands know what is meant.
func TestNamed(t *testing.T) {
	for word, want := range map[string][]string{
		"deployments": {"deployments.apps"}, "Deployment": {"deployments.apps"}, "deploy": {"deployments.apps"},
		"ev": {"events", "events.events.k8s.io"}, "crds": {"customresourcedefinitions.apiextensions.k8s.io"},
		"endpoints": {"endpoints"}, "ingress": {"ingresses.networking.k8s.io"}, "widgets": nil, "": nil,
	} {
		if got := namesOf(kinds.Named(word)); !slices.Equal(got, want) {
			t.Errorf("%q names %v, want %v", word, got, want)
		}
	}
	for _, plural := range kinds.Plurals() {
		all := kinds.Of(plural)
		for _, k := range all {
			for _, word := range append([]string{k.Plural, k.Singular(), k.Name}, k.ShortNames...) {
				if got := namesOf(kinds.Named(word)); !slices.Equal(got, namesOf(all)) {
					t.Errorf("%q names %v, want %v", word, got, namesOf(all))
				}
			}
			if k.Namespaced != all[0].Namespaced {
				t.Errorf("%s is namespaced in one group alone", plural)
			}
		}
	}
}

func namesOf(all []kinds.Kind) (names []string) {
	for i := range all {
		names = append(names, all[i].String())
	}
	return names
}

func TestIsGroup(t *testing.T) {
	for group, want := range map[string]bool{
		"":              true,
		"apps":          true,
		"events.k8s.io": true,
		"example.com":   false,
		"app":           false,
	} {
		if got := kinds.IsGroup(group); got != want {
			t.Errorf("%q: %v", group, got)
		}
	}
}
