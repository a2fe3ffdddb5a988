// Package clients runs programs of others against a cluster and later against its record. At a
// moment, and in a replay, `kubecdc serve` must answer as the API server answered then. The package
// has only tests.
//
// # What a client does
//
// Each client has a directory, which pins its versions. Most are a small program on a client
// library. It reads KUBECONFIG, and its arguments are one of these words and a namespace:
//
//   - read: it prints the version of the server, ConfigMaps by list, label, field, and page by
//     page, one of them, a Deployment, custom resources, and the error about an object that does
//     not exist.
//   - watch: it prints "listed" and the ConfigMaps, then each change until a ConfigMap "last" is
//     there. It does so in each way in which the library watches.
//   - write: it prints the errors of attempts to write.
//
// The test compares what it prints for the cluster and for its record. Command line tools (kubectl,
// Helm) are compared command by command, k9s screen by screen at a terminal, popeye finding by
// finding. kube-state-metrics and Headlamp are not in any registry: their requests are in testdata,
// and a test sends them to both servers.
//
// # Needs
//
// Some clients need a Rust toolchain, a JDK 17 with Maven, Node.js or Ruby, and much is built once,
// into the user's cache directory. kube and k9s take a quarter of an hour each. So a plain run has
// only the clients that other tests need too. KUBECDC_CLIENTS=all runs all, and says which one the
// machine cannot install. KUBECDC_CLIENTS=require fails for those.
package clients
