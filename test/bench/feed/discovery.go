package feed

import (
	"encoding/json"
	"net/http"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// aggregated is the media type of aggregated discovery (KEP-3352), in requests and answers.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

var (
	readWrite = []string{"create", "delete", "get", "update"}
	watched   = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

	// Only pods can be listed and watched, so a contestant that watches everything finds only them.
	coreGroups = group("", "v1",
		served("pods", "pod", "Pod", "", watched, "po"),
		served("configmaps", "configmap", "ConfigMap", "", readWrite, "cm"),
		apidiscovery.APIResourceDiscovery{
			Resource:         "namespaces",
			SingularResource: "namespace",
			Scope:            apidiscovery.ScopeCluster,
			ResponseKind:     &metav1.GroupVersionKind{Version: "v1", Kind: "Namespace"},
			Verbs:            []string{"get"},
		},
	)
	namedGroups = group("coordination.k8s.io", "v1",
		served("leases", "lease", "Lease", "coordination.k8s.io", readWrite))
)

func served(plural, singular, kind, group string, verbs []string, short ...string) apidiscovery.APIResourceDiscovery {
	return apidiscovery.APIResourceDiscovery{
		Resource:         plural,
		SingularResource: singular,
		Scope:            apidiscovery.ScopeNamespace,
		ShortNames:       short,
		ResponseKind:     &metav1.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
		Verbs:            verbs,
	}
}

func group(name, version string, resources ...apidiscovery.APIResourceDiscovery) *apidiscovery.APIGroupDiscoveryList {
	return &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items: []apidiscovery.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Versions: []apidiscovery.APIVersionDiscovery{{
				Version: version, Resources: resources, Freshness: apidiscovery.DiscoveryFreshnessCurrent,
			}},
		}},
	}
}

// discovery answers /api or /apis, in the aggregated form if the client accepts it.
func discovery(groups *apidiscovery.APIGroupDiscoveryList, legacy any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), aggregated) {
			reply(w, http.StatusOK, legacy)
			return
		}
		text, err := json.Marshal(groups)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", aggregated)
		_, _ = w.Write(text)
	}
}

var (
	legacyVersions = &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"},
	}
	legacyGroups = &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups: []metav1.APIGroup{{
			Name: "coordination.k8s.io",
			Versions: []metav1.GroupVersionForDiscovery{{
				GroupVersion: "coordination.k8s.io/v1",
				Version:      "v1",
			}},
			PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "coordination.k8s.io/v1", Version: "v1"},
		}},
	}
)

// resources answers legacy discovery of one group and version.
func resources(groups *apidiscovery.APIGroupDiscoveryList) http.HandlerFunc {
	g := groups.Items[0]
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: strings.TrimPrefix(g.Name+"/"+g.Versions[0].Version, "/"),
	}
	for _, r := range g.Versions[0].Resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name:         r.Resource,
			SingularName: r.SingularResource,
			Kind:         r.ResponseKind.Kind,
			Namespaced:   r.Scope == apidiscovery.ScopeNamespace,
			Verbs:        r.Verbs,
			ShortNames:   r.ShortNames,
		})
	}
	return func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, list) }
}
