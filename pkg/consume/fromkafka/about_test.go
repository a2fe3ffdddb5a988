package fromkafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
)

// keyOf is the key of a delta's records, as the agent makes it.
func keyOf(t *testing.T, d *object.Delta) string {
	t.Helper()
	encoder := encode.New(encode.Options{
		Cluster:    "prod-eu.1",
		ClusterUID: "uid",
		Writer:     "5f2c98d1a4b0e367",
		Run:        "0-1",
	})
	var e encode.Event
	if err := encoder.Encode(&e, d); err != nil {
		t.Fatal(err)
	}
	return string(slices.Clone(e.PartitionKey))
}

// A key says what its record is about, and nothing that is wrong.
func TestAboutKey(t *testing.T) {
	t.Parallel()
	const cluster = "prod-eu.1"
	deployments := &object.Resource{
		Group:      "apps",
		Version:    "v1",
		Name:       "deployments",
		Kind:       "Deployment",
		Namespaced: true,
	}
	roles := &object.Resource{
		Group:   "rbac.authorization.k8s.io",
		Version: "v1",
		Name:    "clusterroles",
		Kind:    "ClusterRole",
	}
	pods := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	of := func(r *object.Resource, namespace, name string) string {
		return keyOf(t, &object.Delta{
			Op: object.Deleted, Ref: object.NewRef(r, namespace, name, "u"), ResourceVersion: 7,
			Before: object.New(object.NewRef(r, namespace, name, "u"), 6, 0, nil, []byte(`{"metadata":{}}`)),
		})
	}
	stream := func(r *object.Resource, scope string) string { // each partition has a copy with its number
		key := keyOf(t, &object.Delta{Stream: &object.StreamEvent{
			Kind:     object.Gap,
			Resource: r,
			Scope:    scope,
			From:     1,
			To:       2,
			Reason:   object.Expired,
		}})
		return key + "/11"
	}
	about := consume.About{Cluster: cluster, Resource: "deployments.apps"}
	for key, want := range map[string]consume.About{
		of(deployments, "shop", "web.v1"): {
			Cluster:   cluster,
			Resource:  "deployments.apps",
			Namespace: "shop",
			Name:      "web.v1",
		},
		of(pods, "shop", "3"): {Cluster: cluster, Resource: "pods", Namespace: "shop", Name: "3"},
		of(roles, "", "system:node"): {
			Cluster:   cluster,
			Resource:  roles.String(),
			Namespace: consume.NoNamespace,
			Name:      "system:node",
		},
		of(pods, "s", strings.Repeat("a", 3000)): {Cluster: cluster, Resource: "pods", Namespace: "s"},

		stream(deployments, "deployments.apps"):                                           about,
		stream(deployments, "deployments.apps/shop,bank"):                                 about,
		stream(deployments, "deployments.apps/team-?,!team-x"):                            about,
		stream(deployments, "deployments.apps?labelSelector=a.io/b=c"):                    about,
		stream(deployments, "deployments.apps/shop?labelSelector=a.io/b=c"):               about,
		stream(deployments, "deployments.apps/shop?labelSelector=a.io/b=c,d.io/e in (f)"): about,
		stream(deployments, "deployments.apps?any=shop?labelSelector=team=a|b"):           about,
		cluster + "/progress/5f2c98d1a4b0e367/3": {
			Cluster:  cluster,
			Progress: true,
		},

		"":                                    {},
		"/":                                   {},
		"//":                                  {},
		"x":                                   {},
		"a/b":                                 {},
		"prod/apps/deployments/shop":          {},
		"/apps/deployments/shop/web":          {},
		"prod/apps/deployments//web":          {},
		"prod/apps/Deployments/shop/web":      {},
		"prod/progress/x":                     {},
		"prod/-/3":                            {},
		"prod/pods/x":                         {},
		strings.Repeat("p", 5000) + "/pods/3": {},
		"\xff/\xfe/\xfd":                      {},
	} {
		if got := fromkafka.AboutKey([]byte(key)); got != want {
			t.Errorf("%.80q: got %+v, want %+v", key, got, want)
		}
	}
	for _, other := range []string{"prod/core/pods/shop/web/x", "prod/core/pods/shop"} {
		if got := fromkafka.AboutKey([]byte(other)); got.Name != "" || got.Namespace != "" {
			t.Errorf("%s: %+v", other, got)
		}
	}
	if got := fmt.Sprint(fromkafka.AboutKey(nil)); got != fmt.Sprint(consume.About{}) {
		t.Errorf("no key: %s", got)
	}
}
