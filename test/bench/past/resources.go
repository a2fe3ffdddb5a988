package past

import (
	"fmt"

	"github.com/kubecdc/kubecdc/internal/object"
)

// MaxResources is the largest number of resources of a record.
const MaxResources = 64

// kind is a resource of the record, with its part of all objects.
type kind struct {
	object.Resource

	weight int
}

// resources returns the first n resources, of which the first one is deployments. Those of
// Kubernetes have most of the objects, and custom resources follow.
func resources(n int) []*kind {
	all := []*kind{
		{object.Resource{Group: "apps", Version: "v1", Name: "deployments", Kind: "Deployment", Namespaced: true}, 60},
		{object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}, 220},
		{object.Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, 120},
		{object.Resource{Version: "v1", Name: "services", Kind: "Service", Namespaced: true}, 60},
		{object.Resource{Group: "apps", Version: "v1", Name: "replicasets", Kind: "ReplicaSet", Namespaced: true}, 180},
		{object.Resource{Group: "discovery.k8s.io", Version: "v1", Name: "endpointslices", Kind: "EndpointSlice", Namespaced: true}, 60},
		{object.Resource{Group: "batch", Version: "v1", Name: "jobs", Kind: "Job", Namespaced: true}, 40},
		{object.Resource{Version: "v1", Name: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true}, 40},
		{object.Resource{Version: "v1", Name: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true}, 20},
		{object.Resource{Group: "autoscaling", Version: "v2", Name: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", Namespaced: true}, 20},
		{object.Resource{Group: "policy", Version: "v1", Name: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Namespaced: true}, 20},
		{object.Resource{Group: "networking.k8s.io", Version: "v1", Name: "ingresses", Kind: "Ingress", Namespaced: true}, 20},
		{object.Resource{Version: "v1", Name: "nodes", Kind: "Node"}, 5},
		{object.Resource{Version: "v1", Name: "persistentvolumes", Kind: "PersistentVolume"}, 20},
		{object.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Name: "clusterroles", Kind: "ClusterRole"}, 5},
	}
	for k := len(all); k < n; k++ {
		name := fmt.Sprintf("widget%02d", k)
		all = append(all, &kind{object.Resource{
			Group: "shop.example.com", Version: "v1", Name: name + "s", Kind: "W" + name[1:], Namespaced: true,
		}, 2})
	}
	return all[:n]
}

// spread returns the kind of each of n objects: each resource has at least one, and the others are
// spread by weight.
func spread(all []*kind, n int) []*kind {
	total := 0
	for _, k := range all {
		total += k.weight
	}
	out := make([]*kind, 0, n)
	out = append(out, all...)
	rest, sum := n-len(all), 0
	for _, k := range all {
		sum += k.weight
		for len(out) < len(all)+rest*sum/total {
			out = append(out, k)
		}
	}
	return out
}
