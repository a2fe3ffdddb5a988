// Command cluster is a Kubernetes control plane in one binary: etcd, kube-apiserver and
// kube-controller-manager, and kubectl to look at it with. They are built from their Go modules and
// chosen by the first argument. Everything after it is the component's own command line:
//
//	cluster etcd --data-dir=…
//	cluster kube-apiserver --etcd-servers=…
//	cluster kube-controller-manager --kubeconfig=…
//	cluster kubectl get pods
//
// It exists so that tests and the demo meet a real API server without Docker and without a download
// of binaries. It is a module of its own so that what Kubernetes requires stays out of the other
// go.mod files. Nothing imports it; package test/controlplane builds and starts it.
//
// One binary and not four, because they share most of their packages: one link of some 20 s instead
// of four.
package main
