package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Discover asks which resources the API server serves that can be listed and watched. failed are group versions of which it did not
// answer: unknown, not gone.
func Discover(ctx context.Context, c *apiserver.Client) (out []selection.APIResource, failed []string, err error) {
	groups, lists, err := c.Discovery.ServerGroupsAndResourcesWithContext(ctx)
	var partial *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &partial) {
		for gv := range partial.Groups {
			failed = append(failed, gv.String())
		}
		slices.Sort(failed)
	} else if err != nil {
		return nil, nil, fmt.Errorf("discover resources: %w", err)
	}
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	index := map[schema.GroupResource]int{} // in out
	for _, g := range groups {
		versions := []string{g.PreferredVersion.GroupVersion}
		for _, v := range g.Versions {
			if v.GroupVersion != g.PreferredVersion.GroupVersion {
				versions = append(versions, v.GroupVersion)
			}
		}
		for _, gv := range versions {
			l := byVersion[gv]
			if l == nil {
				continue
			}
			parsed, err := schema.ParseGroupVersion(gv)
			if err != nil {
				return nil, nil, fmt.Errorf("discover resources: group version %q: %w", gv, err)
			}
			for _, r := range l.APIResources {
				if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
					continue
				}
				gr := schema.GroupResource{Group: parsed.Group, Resource: r.Name}
				at, ok := index[gr]
				if !ok {
					at = len(out)
					index[gr] = at
					out = append(out, selection.APIResource{Group: parsed.Group, Name: r.Name})
				}
				out[at].Versions = append(out[at].Versions, object.Resource{
					Group: parsed.Group, Version: parsed.Version, Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced,
				})
			}
		}
	}
	return out, failed, nil
}
