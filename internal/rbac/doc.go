// Package rbac derives from a configuration what its agent has to be allowed: the smallest ClusterRole, Roles and
// bindings that RBAC can express.
//
// What the agent asks an API server for decides, and nothing else does:
//
//   - LIST and WATCH of what is captured, in all namespaces or, where a rule names its namespaces literally, in each of
//     them. Where several rules can take a resource, one informer reads it for all of them: in the namespaces that any of them
//     names, or in all, and under what selectors they have in common. The questions under a selector (LIST of one name,
//     Exact) are LISTs of the same resource.
//   - LIST and WATCH of CustomResourceDefinitions and APIServices, where a rule can take what Kubernetes itself does not serve.
//   - GET of the namespace kube-system, whose uid names the cluster.
//   - GET, UPDATE and CREATE of the ConfigMap with the checkpoint, where it is kept in one.
//   - discovery, which the ClusterRole system:discovery gives to everyone who is authenticated.
//
// # Invariants
//
//   - Nothing is missing: an agent with this access and this configuration meets no 403.
//   - Nothing is too much, as far as RBAC can tell it apart; where it cannot (exclusions, globs, selectors), a note says
//     what is allowed beyond what is read.
//   - The same input gives the same bytes.
//
// The package is pure: it reads no file and asks no API server. What a cluster serves is handed to it.
package rbac
