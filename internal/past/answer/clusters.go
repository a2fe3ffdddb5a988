package answer

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Clusters are the names of the clusters of an answer.
type Clusters map[consume.ClusterKey]string

// shortUID is how much of a uid distinguishes clusters of one name, unless they share it.
const shortUID = 8

// Label returns the text for a cluster: its name, and the beginning of its uid if another cluster
// has the same name. It is as long as --cluster-uid needs it.
func (c Clusters) Label(key consume.ClusterKey) string {
	name, short := c[key], key.UID[:min(shortUID, len(key.UID))]
	shared := false // the name
	for other, otherName := range c {
		if other == key || otherName != name {
			continue
		}
		shared = true
		if strings.HasPrefix(other.UID, short) {
			short = key.UID
		}
	}
	if !shared {
		return name
	}
	return strings.TrimSuffix(name+" "+short, " ")
}

// Labels returns the texts for all clusters, sorted.
func (c Clusters) Labels() []string {
	var out []string
	for key := range c {
		out = append(out, c.Label(key))
	}
	slices.Sort(out)
	return out
}

// Flags returns the flags that select one of the clusters.
func (c Clusters) Flags(name string) string {
	names := slices.Sorted(maps.Values(c))
	if len(slices.Compact(names)) == len(c) {
		return "--" + name
	}
	return "--" + name + " and --" + name + "-uid"
}

// One returns an error if there are several clusters. what is the word for their content, flag is
// the name of the flag that selects a cluster.
func (c Clusters) One(what, flag string) error {
	if len(c) < 2 {
		return nil
	}
	return UsageError{
		fmt.Errorf("the record has %s of several clusters: name one with %s: %s", what, c.Flags(flag),
			strings.Join(c.Labels(), ", ")),
	}
}

// clusterOf returns the name of the cluster of a source.
func clusterOf(source string) string {
	escaped := strings.TrimPrefix(source, "/kubernetes/")
	if name, err := url.PathUnescape(escaped); err == nil {
		return name
	}
	return escaped
}

// Add adds the clusters of objects.
func (c Clusters) Add(objects []*timeline.Version) {
	for _, v := range objects {
		c[v.ClusterKey()] = v.Cluster
	}
}

// AddScopes adds the clusters of scopes, unless they are known.
func (c Clusters) AddScopes(scopes []certainty.Scope) {
	for i := range scopes {
		if key := scopes[i].ClusterKey(); c[key] == "" && key != (consume.ClusterKey{}) {
			c[key] = clusterOf(key.Source)
		}
	}
}
