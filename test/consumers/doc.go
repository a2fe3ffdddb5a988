// Package consumers proves that others can read what the agent publishes: the CloudEvents SDKs of Python, JavaScript and
// Go, the programs of examples, and each command line and code block of docs/guides/consume.md. Python's client of Kubernetes and
// a manager of controller-runtime read the past that `kubecdc serve` shows. The package has no code besides its tests. Modules with
// dependencies of their own are in the folders natscli and manager, and are built by the tests that run them.
//
// Records are made by the agent's own encoder and publisher. The programs are shown a history with everything that may
// happen to a stream, copies, late copies, gaps, rewinds, snapshots that are interrupted or miss what is gone, and have to
// end with exactly the objects that exist in the cluster that the history was made of (history).
//
// # Needs
//
// python3 with venv, node and npm, which are not part of Go's toolchain: without one of them its tests are skipped, or
// fail where CI is set. What the package managers install lies in the user's cache directory, kubecdc/consumers-<hash of
// the pins>, made once.
package consumers
