package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Discover returns the resources that the API server serves and that can be listed and watched. unknown are the group versions that it
// could not read: their resources may be served.
func Discover(ctx context.Context, c *apiserver.Client) (served []selection.APIResource, unknown []string, err error) {
	groups, lists, err := c.Discovery.ServerGroupsAndResourcesWithContext(ctx)
	var partial *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &partial) {
		for gv := range partial.Groups {
			unknown = append(unknown, gv.String())
		}
		slices.Sort(unknown)
	} else if err != nil {
		return nil, nil, fmt.Errorf("discover resources: %w", err)
	}
	byVersion := make(map[string][]metav1.APIResource, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l.APIResources
	}
	for _, g := range groups {
		served = append(served, ofGroup(g, byVersion)...)
	}
	return served, unknown, nil
}

// ofGroup returns the resources of a group that can be listed and watched, each with its preferred version first.
func ofGroup(g *metav1.APIGroup, byVersion map[string][]metav1.APIResource) (out []selection.APIResource) {
	index := map[string]int{} // in out, by name
	others := slices.DeleteFunc(slices.Clone(g.Versions), func(v metav1.GroupVersionForDiscovery) bool { return v == g.PreferredVersion })
	for _, v := range append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, others...) {
		for _, r := range byVersion[v.GroupVersion] {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				continue
			}
			at, ok := index[r.Name]
			if !ok {
				at = len(out)
				index[r.Name] = at
				out = append(out, selection.APIResource{Group: g.Name, Name: r.Name})
			}
			out[at].Versions = append(out[at].Versions, object.Resource{
				Group: g.Name, Version: v.Version, Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced,
			})
		}
	}
	return out
}
