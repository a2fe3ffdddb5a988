// Package kubelet runs the Pods of a control plane as local processes: it stands in for the scheduler, the kubelets and the
// container runtime that package controlplane lacks, so that what a chart installs does run, and not something like it.
//
// A container is a process in namespaces of its own: a root file system with what its image has and nothing else, the
// Pod's volumes mounted where they say (the projected token of its ServiceAccount, by TokenRequest, included), hostname and
// process 1 as in a container, the user, capabilities, read-only root and no_new_privs of its securityContext. Environment,
// arguments and probes are resolved as a kubelet does, Ready is what the readiness probe says, an ended container is
// started again, a deleted Pod gets SIGTERM and after its grace period SIGKILL.
//
// The network of a Pod is a namespace with a loopback interface only. What it may reach is given by [Options.Routes]:
// each is a listener on that address inside of the Pod which is forwarded to an address outside of it. The API server is
// at KUBERNETES_SERVICE_HOST and so reached, and trusted, as in a cluster.
//
// # Not there
//
// Seccomp profiles, resource limits (but they are in the environment where it asks for them), NetworkPolicies, Services other than the
// routes, the update of mounted volumes, lifecycle hooks, gRPC probes, volumes other than configMap, secret, projected, emptyDir,
// hostPath and downwardAPI. What a Pod has of these and cannot be ignored keeps it from starting: [Kubelet.Errors] says why.
//
// # Goroutines
//
// [Kubelet.Run] has one for each Pod, and each container one that keeps its thread, which is in the container's
// namespaces, until the process is gone; all end before it returns. Linux and root only: [Available] says why not.
package kubelet
