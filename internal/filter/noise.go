package filter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
)

// noise is a ready-made filter: it withholds an update in which nothing differs but what its paths name.
type noise struct {
	name      string
	resources []string // of whose objects; nil: of any
	paths     []string // beside resourceVersion and managedFields

	but *comparison
	// told is as but, except for metadata.generation, which tells of a change of a value that redaction removes.
	told *comparison
	none *comparison // but for bookkeeping alone
}

// triggerTime is when the change was made that an endpoints controller has acted on.
const triggerTime = `metadata.annotations["endpoints.kubernetes.io/last-change-trigger-time"]`

// noises are the ready-made filters, documented in docs/guides/select.md.
func noises() []noise {
	return []noise{
		{name: "managed-fields-only"},
		{name: "status-only", paths: []string{"status"}},
		{name: "lease-heartbeats", resources: []string{"leases.coordination.k8s.io"}, paths: []string{"spec.renewTime"}},
		{name: "node-heartbeats", resources: []string{"nodes"}, paths: []string{"status.conditions[*].lastHeartbeatTime"}},
		{
			name: "endpoints-churn", resources: []string{"endpoints", "endpointslices.discovery.k8s.io"},
			paths: []string{"endpoints", "subsets[*].addresses", "subsets[*].notReadyAddresses", triggerTime},
		},
	}
}

// newNoise compiles the filter of that name.
func newNoise(name string) (*noise, error) {
	all := noises()
	i := slices.IndexFunc(all, func(n noise) bool { return n.name == name })
	if i < 0 {
		return nil, fmt.Errorf("noise %q: want one of %s", name, strings.Join(NoiseNames(), ", "))
	}
	n := &all[i]
	told := slices.DeleteFunc(bookkeeping(), func(path string) bool { return path == "metadata.generation" })
	for _, c := range []struct {
		to    **comparison
		paths []string
	}{{&n.but, append(bookkeeping(), n.paths...)}, {&n.told, append(told, n.paths...)}, {&n.none, bookkeeping()}} {
		var err error
		if *c.to, err = newComparison(c.paths); err != nil {
			return nil, fmt.Errorf("noise %s: %w", name, err)
		}
	}
	return n, nil
}

// masked is a noise filter as it is for one resource.
type masked struct {
	reason string
	but    *comparison
	// none: the two must not be the same but for this; nil: they may.
	none *comparison
}

// maskOf is the filter for a resource, nil where it withholds nothing of it. removes: redaction removes values from it.
func (n *noise) maskOf(r *object.Resource, removes bool) *masked {
	switch {
	case n.resources != nil && !slices.Contains(n.resources, r.String()):
		return nil
	case !removes:
		return &masked{reason: reasonNoise + n.name, but: n.but}
	case len(n.paths) == 0:
		return nil
	}
	// The change of a removed value shows in the generation, where the resource has one, and else nowhere: so something
	// must be seen to differ, or there is nothing that could be called noise.
	return &masked{reason: reasonNoise + n.name, but: n.told, none: n.none}
}

// takes tells whether the filter withholds an update. JSON that cannot be read is left for those who must read it.
func (m *masked) takes(e *evaluation) bool {
	before, after, err := e.both()
	if err != nil {
		return false
	}
	if same, err := m.but.same(before, after); err != nil || !same {
		return false
	}
	if m.none == nil {
		return true
	}
	nothing, err := m.none.same(before, after)
	return err == nil && !nothing
}
