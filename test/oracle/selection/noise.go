package selection

import (
	"github.com/kubecdc/kubecdc/test/oracle"
)

// The ready-made filters, by their documentation.

// noisy are the filters that can be drawn.
func noisy() []string {
	return []string{"status-only", "lease-heartbeats", "node-heartbeats", "managed-fields-only", "endpoints-churn"}
}

// isNoise tells whether a filter withholds an update. With removes, redaction takes values out of the object: what looks like no
// change may be one of such a value, which must not pass for noise.
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
			m.changedOnly([]string{"endpoints"}, []string{"subsets", "*", "addresses"}, []string{"subsets", "*", "notReadyAddresses"}, trigger)
	}
	return false
}
