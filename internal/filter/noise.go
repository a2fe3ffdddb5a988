package filter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
)

// noise is a ready-made filter: it withholds an update in which nothing differs except for its
// paths.
type noise struct {
	name      string
	resources []string // the resources that it applies to; nil: all
	paths     []string // in addition to resourceVersion and managedFields

	but *comparison
	// visible is as but, except for metadata.generation, which reveals the change of a value that
	// redaction removes.
	visible *comparison
	none    *comparison // except for bookkeeping alone
}

// triggerTime is the time of the change that an endpoints controller has processed.
const triggerTime = `metadata.annotations["endpoints.kubernetes.io/last-change-trigger-time"]`

// noises returns the ready-made filters, documented in docs/guides/select.md.
func noises() []noise {
	return []noise{
		{name: "managed-fields-only"},
		{name: "status-only", paths: []string{"status"}},
		{name: "lease-heartbeats", resources: []string{"leases.coordination.k8s.io"}, paths: []string{
			"spec.renewTime",
		}},
		{name: "node-heartbeats", resources: []string{"nodes"}, paths: []string{
			"status.conditions[*].lastHeartbeatTime",
		}},
		{
			name: "endpoints-churn", resources: []string{"endpoints", "endpointslices.discovery.k8s.io"},
			paths: []string{"endpoints", "subsets[*].addresses", "subsets[*].notReadyAddresses", triggerTime},
		},
	}
}

// newNoise compiles the filter with the name.
func newNoise(name string) (*noise, error) {
	all := noises()
	i := slices.IndexFunc(all, func(n noise) bool { return n.name == name })
	if i < 0 {
		return nil, fmt.Errorf("noise %q: want one of %s", name, strings.Join(NoiseNames(), ", "))
	}
	n := &all[i]
	visible := slices.DeleteFunc(bookkeeping(), func(path string) bool { return path == "metadata.generation" })
	for _, c := range []struct {
		to    **comparison
		paths []string
	}{{&n.but, append(bookkeeping(), n.paths...)}, {&n.visible, append(visible, n.paths...)}, {
		&n.none, bookkeeping(),
	}} {
		var err error
		*c.to, err = newComparison(c.paths)
		if err != nil {
			return nil, fmt.Errorf("noise %s: %w", name, err)
		}
	}
	return n, nil
}

// masked is a noise filter for one resource.
type masked struct {
	reason string
	but    *comparison
	// none: the objects must also differ in more than this; nil: no such condition.
	none *comparison
}

// maskOf returns the filter for a resource, nil if it withholds nothing there. removes: redaction
// removes values of its objects.
func (n *noise) maskOf(r *object.Resource, removes bool) *masked {
	switch {
	case n.resources != nil && !slices.Contains(n.resources, r.String()):
		return nil
	case !removes:
		return &masked{reason: reasonNoise + n.name, but: n.but}
	case len(n.paths) == 0:
		return nil
	}
	// The change of a removed value is visible in the generation, if the resource has one, and
	// nowhere else. Noise is therefore only an update with a visible difference.
	return &masked{reason: reasonNoise + n.name, but: n.visible, none: n.none}
}

// isNoise reports whether the filter withholds an update. It ignores invalid JSON, which the
// encoder reports.
func (m *masked) isNoise(e *evaluation) bool {
	before, after, err := e.bothJSON()
	if err != nil {
		return false
	}
	if same, err := m.but.isSame(before, after); err != nil || !same {
		return false
	}
	if m.none == nil {
		return true
	}
	nothing, err := m.none.isSame(before, after)
	return err == nil && !nothing
}
