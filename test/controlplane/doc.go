// Package controlplane runs a Kubernetes control plane as local processes, for tests and for the
// demo: etcd, one or more API servers and the controller manager. They use free ports of 127.0.0.1,
// TLS, RBAC, tokens and a data directory of their own. No Docker, no kubelet: Pods are created and
// deleted by their controllers and never run.
//
//	cluster, err := controlplane.Start(ctx, controlplane.Options{})
//	if err != nil { … }
//	defer cluster.Stop()
//	client, err := dynamic.NewForConfig(cluster.Config(controlplane.Admin))
//
// # Binaries
//
// The components are compiled from their Go modules by [Build] (package test/cluster), once, into
// the user's cache directory. If the environment variable KUBEBUILDER_ASSETS is set, the binaries
// etcd, kube-apiserver and kube-controller-manager of that directory run instead. setup-envtest
// does not install the last one, so a control plane of its binaries needs
// [Options.NoControllerManager]. [Installed] also finds binaries on PATH, for [Options.Binaries].
//
// test/cluster/go.mod has the version of Kubernetes with which tests run. [Options.Version] is
// another minor. Its modules are in test/cluster/versions, for example v1.36.mod and v1.36.sum. The
// sources are the same, and so are the requirements. Such a file has, from the go.mod of
// k8s.io/kubernetes of that release:
//
//   - the version of etcd;
//   - the line godebug;
//   - a replacement for each module below staging, with the release's version in place of v0.0.0.
//
// To add a version or to change one, write these lines, and run in test/cluster:
//
//	GOWORK=off go mod tidy -modfile=versions/v1.36.mod
//
// # Invariants
//
//   - Addresses outlive processes: a component that is stopped and started again has the same port
//     and the same data.
//   - A process ends with the process that started it, also if that one is killed. On Linux the
//     kernel ends it (PR_SET_PDEATHSIG). Elsewhere, and as a fallback, the binary of [Build] ends
//     at the end of file on its standard input, a pipe that nobody writes to. Binaries from
//     KUBEBUILDER_ASSETS have only the first.
//   - Processes are ended by the handle they were started with, never by name.
//   - Components write to files in the data directory only: etcd.log, kube-apiserver-0.log and so
//     on, kube-controller-manager.log. When one does not get ready, the last lines of its log are
//     in the error.
//
// # Goroutines
//
// One for each running process, which waits for its end. They are gone when [Cluster.Stop] returns.
//
// Everything is disposable: etcd does not fsync, it answers anyone on 127.0.0.1, and the keys are
// in the data directory. Linux and macOS; the file lock of Build has no Windows counterpart here.
package controlplane
