// Command demo shows kubecdc at work in one terminal: a real control plane, `kubecdc run` with its
// embedded JetStream, a small workload, and its changes in `kubecdc tail --diff`. It also runs
// `kubecdc history` and `kubecdc get --at` once. With KUBECONFIG_DEMO it follows that cluster
// instead and writes nothing to it.
//
// # Environment
//
//   - DEMO_SECONDS: how long the workload is shown. The demo then ends by itself, with exit code 0
//     only if tail has shown the expected changes. Unset: until Ctrl-C.
//   - KUBECONFIG_DEMO: the kubeconfig of a cluster to follow; KUBECONFIG_DEMO_CONTEXT: its context,
//     by default the current.
//   - KUBEBUILDER_ASSETS: the directory of etcd, kube-apiserver, and if it has them,
//     kube-controller-manager and kubectl. Unset: those on PATH, a control plane that was built
//     before, binaries that setup-envtest downloads, or a control plane that is built. Without a
//     controller manager, the workload creates the Pods of its Deployment.
//   - DEMO_STARTED: when the person pressed enter, in seconds since 1970 with a fraction.
//     DEMO_STAGES: what was compiled since then, and when it was ready. test/demo/run sets both.
//
// # Processes and goroutines
//
// The control plane, the agent and tail are children in process groups of their own, so that a
// Ctrl-C reaches only the demo. The demo ends them in order: the workload, tail, the agent (which
// drains), the control plane. Then it removes the temporary directory. The workload, the stand-in
// for a node and the reader of tail's output are goroutines of one errgroup; the first that fails
// ends the others.
package main
