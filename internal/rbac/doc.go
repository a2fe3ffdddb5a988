// Package rbac derives the permissions of an agent from its configuration: the smallest
// ClusterRole, Roles and bindings that RBAC can express, and an admission policy where it cannot.
//
// The requests of the agent to API servers alone determine them:
//
//   - LIST and WATCH of captured resources, in all namespaces or, if a rule names its namespaces
//     literally, in each of them. If several rules can take a resource, one informer reads it for
//     all of them: in the namespaces that any of them names, or in all, and with the selectors that
//     they share. The reads with a selector (LIST of one name, Exact) are LISTs of the same
//     resource.
//   - LIST and WATCH of CustomResourceDefinitions and APIServices, if a rule can take resources
//     beyond Kubernetes' own.
//   - GET of the namespace kube-system, whose uid identifies the cluster.
//   - GET, UPDATE and CREATE of the ConfigMap with the checkpoint, if one stores it. The agents on
//     nodes share one account: an admission policy limits each to the ConfigMap of its node.
//   - Discovery, which the ClusterRole system:discovery grants to every authenticated client.
//
// # Invariants
//
//   - No permission is missing: an agent with this access and this configuration receives no 403.
//   - No permission is superfluous, as far as RBAC can express it. RBAC has no exclusions, globs or
//     selectors; a note states the access beyond the agent's reads.
//   - The same input gives the same bytes.
//
// The package is pure: it reads no file and sends no request. The caller passes the discovery of
// the cluster.
package rbac
