// Package kubelet runs the Pods of a control plane as local processes. It stands in for the
// scheduler, the kubelets and the container runtime, which package controlplane lacks. So tests run
// exactly what a chart installs.
//
// A container is a process in namespaces of its own. Its root file system has the files of its
// image and nothing else. The Pod's volumes are mounted at their paths, including the projected
// token of its ServiceAccount (by TokenRequest). Hostname and process 1 are as in a container. The
// user, capabilities, read-only root and no_new_privs are those of its securityContext.
// Environment, arguments and probes are resolved as a kubelet does, and Ready is the result of the
// readiness probe. An ended container is started again. A deleted Pod gets SIGTERM, and SIGKILL
// after its grace period.
//
// The network of a Pod is a namespace with a loopback interface only. [Options.Routes] has the
// addresses that it may reach: each is a listener inside of the Pod that forwards to an address
// outside. The API server is at KUBERNETES_SERVICE_HOST, and is reached and trusted as in a
// cluster.
//
// # Not there
//
// Seccomp profiles, resource limits (except in environment variables that refer to them),
// NetworkPolicies, Services other than the routes, the update of mounted volumes, lifecycle hooks,
// gRPC probes, volumes other than configMap, secret, projected, emptyDir, hostPath and downwardAPI.
// A Pod does not start if it has one of these that cannot be ignored: [Kubelet.Errors] has the
// reason.
//
// # Goroutines
//
// [Kubelet.Run] has one for each Pod, and each container one that keeps its thread, which is in the
// container's namespaces, until the process is gone; all end before it returns. Linux and root
// only: [Available] says why not.
package kubelet
