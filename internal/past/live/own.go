package live

import (
	"context"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// isOwn reports whether no scope that selects an object can capture it. An agent never captures the
// ConfigMap of its checkpoint and the Lease of its election; its checkpoint names them with each
// scope. The checkpoint that belongs to a Lease is searched in the namespace of the Lease. If
// ConfigMaps may not be read, the Lease counts as any other.
func (k *comparison) isOwn(ctx context.Context, now *timeline.Version) (bool, error) {
	if k.q.Own != nil && k.q.Own(k.resource, now.Namespace, now.Name) {
		return true, nil
	}
	var checkpoints []*checkpoint.Document
	switch k.resource {
	case "configmaps":
		if d := checkpoint.OfConfigMap(now.After); d != nil {
			checkpoints = append(checkpoints, d)
		}
	case "leases.coordination.k8s.io":
		var err error
		checkpoints, err = k.checkpointsIn(ctx, now.Namespace)
		if err != nil {
			return false, err
		}
	}
	captured := slices.ContainsFunc(k.scopes, func(s certainty.Scope) bool {
		return selects(s.Name, now) && !slices.ContainsFunc(checkpoints, func(d *checkpoint.Document) bool {
			ignored := d.Scopes[s.Name].Ignored
			return s.Source == "/kubernetes/"+url.PathEscape(d.Cluster) &&
				slices.Contains(ignored, now.Namespace+"/"+now.Name)
		})
	})
	return !captured, nil
}

// checkpointsIn returns the checkpoints in a namespace, and none if they may not be read.
func (k *comparison) checkpointsIn(ctx context.Context, namespace string) ([]*checkpoint.Document, error) {
	if known, ok := k.checkpoints[namespace]; ok {
		return known, nil
	}
	configMaps := &object.Resource{
		Version:    "v1",
		Name:       "configmaps",
		Kind:       "ConfigMap",
		Namespaced: true,
	}
	var found []*checkpoint.Document
	_, err := k.cluster.Client.Pages(ctx, configMaps, namespace, apiserver.JSON, metav1.ListOptions{},
		func(raw []byte) error {
			if d := checkpoint.OfConfigMap(raw); d != nil {
				found = append(found, d)
			}
			return nil
		}, func(*object.ListMeta) error { return nil })
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	if k.checkpoints == nil {
		k.checkpoints = map[string][]*checkpoint.Document{}
	}
	k.checkpoints[namespace] = found
	return found, nil
}
