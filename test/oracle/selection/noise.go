package selection

import (
	"github.com/kubecdc/kubecdc/test/oracle"
)

// This file implements the noise filters as documented.

// noisy returns the filters that can be drawn.
func noisy() []string {
	return []string{"status-only", "lease-heartbeats", "node-heartbeats", "managed-fields-only", "endpoints-churn"}
}

// isNoise reports whether a filter withholds an update. removes is whether redaction removes values
// from the object. An update without a visible change may then have changed such a value, so it
// must not count as noise.
func isNoise(name string, m *moment, removes bool) bool {
	if m.Op != oracle.Updated || m.Before == nil || m.After == nil {
		return false
	}
	if removes && (m.changed("metadata", "generation") || m.changedOnly()) {
		return false
	}
	switch name {
	case "status-only":
		return m.changedOnly([]string{"status"})
	case "managed-fields-only":
		return m.changedOnly()
	case "lease-heartbeats":
		return m.Key.Resource == Leases && m.changedOnly([]string{"spec", "renewTime"})
	case "node-heartbeats":
		return m.Key.Resource == "nodes" && m.changedOnly([]string{"status", "conditions", "*", "lastHeartbeatTime"})
	case "endpoints-churn":
		trigger := []string{"metadata", "annotations", "endpoints.kubernetes.io/last-change-trigger-time"}
		return (m.Key.Resource == EndpointSlices || m.Key.Resource == "endpoints") &&
			m.changedOnly([]string{"endpoints"}, []string{"subsets", "*", "addresses"},
				[]string{"subsets", "*", "notReadyAddresses"}, trigger)
	}
	return false
}
