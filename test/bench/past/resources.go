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

// resources returns the first n resources, beginning with deployments. Those of
// Kubernetes have most of the objects, and custom resources follow.
func resources(n int) []*kind {
	in := func(group, version, name, singular string, weight int) *kind {
		r := object.Resource{
			Group:      group,
			Version:    version,
			Name:       name,
			Kind:       singular,
			Namespaced: true,
		}
		return &kind{r, weight}
	}
	all := []*kind{
		in("apps", "v1", "deployments", "Deployment", 60),
		in("", "v1", "pods", "Pod", 220),
		in("", "v1", "configmaps", "ConfigMap", 120),
		in("", "v1", "services", "Service", 60),
		in("apps", "v1", "replicasets", "ReplicaSet", 180),
		in("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", 60),
		in("batch", "v1", "jobs", "Job", 40),
		in("", "v1", "serviceaccounts", "ServiceAccount", 40),
		in("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", 20),
		in("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", 20),
		in("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", 20),
		in("networking.k8s.io", "v1", "ingresses", "Ingress", 20),
		{object.Resource{Version: "v1", Name: "nodes", Kind: "Node"}, 5},
		{object.Resource{Version: "v1", Name: "persistentvolumes", Kind: "PersistentVolume"}, 20},
		{object.Resource{
			Group:   "rbac.authorization.k8s.io",
			Version: "v1",
			Name:    "clusterroles",
			Kind:    "ClusterRole",
		}, 5},
	}
	for k := len(all); k < n; k++ {
		name := fmt.Sprintf("widget%02d", k)
		all = append(all, in("shop.example.com", "v1", name+"s", "W"+name[1:], 2))
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
