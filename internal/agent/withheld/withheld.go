// Package withheld says what an agent with a configuration keeps out of its record: package answer
// needs it to compare the record with a cluster, and to restore objects.
package withheld

import (
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/past/answer"
)

// By returns what answers have to know of an agent with this configuration.
func By(cfg *config.Config) *answer.Agent {
	return &answer.Agent{
		Strips:    cfg.Strip,
		Hashes:    cfg.Redaction.Mode != config.RedactRemove,
		Withholds: func(resource string) []string { return withheld(cfg, resource) },
		Owns: func(resource, namespace, name string) bool {
			return isOwn(cfg, resource, namespace, name)
		},
	}
}

// isOwn reports whether a configuration names an object as the agent's own: the ConfigMap of its
// checkpoint, or the Lease of its election.
func isOwn(cfg *config.Config, resource, namespace, name string) bool {
	switch configMap, election := cfg.Checkpoint.ConfigMap, &cfg.LeaderElection; resource {
	case "configmaps":
		return configMap != nil && *configMap == config.CheckpointConfigMap{Namespace: namespace, Name: name}
	case "leases.coordination.k8s.io":
		return election.Enabled && election.Namespace == namespace && election.Lease == name
	}
	return false
}

// withheld returns the paths that an agent with a configuration strips or redacts in objects of a
// resource.
func withheld(cfg *config.Config, resource string) []string {
	plural, group, _ := strings.Cut(resource, ".")
	paths := slices.Clone(cfg.Strip)
	for i := range cfg.Watch {
		r := &cfg.Watch[i]
		if slices.ContainsFunc(r.Resources,
			func(p config.ResourcePattern) bool { return p.Match(group, p.Version, plural) }) {
			paths = append(paths, r.Redact...)
		}
	}
	return paths
}
