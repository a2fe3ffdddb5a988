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
func (c *comparison) isOwn(ctx context.Context, now *timeline.Version) (bool, error) {
	if c.q.Own != nil && c.q.Own(c.resource, now.Namespace, now.Name) {
		return true, nil
	}
	var checkpoints []*checkpoint.Document
	switch c.resource {
	case "configmaps":
		if d := checkpoint.OfConfigMap(now.After); d != nil {
			checkpoints = append(checkpoints, d)
		}
	case "leases.coordination.k8s.io":
		var err error
		checkpoints, err = c.checkpointsIn(ctx, now.Namespace)
		if err != nil {
			return false, err
		}
	}
	captured := slices.ContainsFunc(c.scopes, func(s certainty.Scope) bool {
		return selects(s.Name, now) && !slices.ContainsFunc(checkpoints, func(d *checkpoint.Document) bool {
			ignored := d.Scopes[s.Name].Ignored
			return s.Source == "/kubernetes/"+url.PathEscape(d.Cluster) &&
				slices.Contains(ignored, now.Namespace+"/"+now.Name)
		})
	})
	return !captured, nil
}

// checkpointsIn returns the checkpoints in a namespace, and none if they may not be read.
func (c *comparison) checkpointsIn(ctx context.Context, namespace string) ([]*checkpoint.Document, error) {
	if known, ok := c.checkpoints[namespace]; ok {
		return known, nil
	}
	configMaps := &object.Resource{
		Version:    "v1",
		Name:       "configmaps",
		Kind:       "ConfigMap",
		Namespaced: true,
	}
	var found []*checkpoint.Document
	_, err := c.cluster.Client.Pages(ctx, configMaps, namespace, apiserver.JSON, metav1.ListOptions{},
		func(raw []byte) error {
			if d := checkpoint.OfConfigMap(raw); d != nil {
				found = append(found, d)
			}
			return nil
		}, func(*object.ListMeta) error { return nil })
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	if c.checkpoints == nil {
		c.checkpoints = map[string][]*checkpoint.Document{}
	}
	c.checkpoints[namespace] = found
	return found, nil
}
