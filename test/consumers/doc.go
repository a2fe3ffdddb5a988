// Package consumers proves that others can read the agent's records. It tests the CloudEvents SDKs
// of Python, JavaScript and Go, the programs of examples, and each command line and code block of
// docs/guides/consume.md. Python's client of Kubernetes and a manager of controller-runtime read
// the past from `kubecdc serve`. The package has only tests. Modules with dependencies of their own
// are in the directories natscli and manager, and are built by the tests that run them.
//
// Records are made by the agent's own encoder and publisher. The programs read a history with
// everything that may happen to a stream: copies, late copies, gaps, rewinds, and snapshots that
// are interrupted or lack deleted objects. They must end with exactly the objects of the cluster
// that the history was made from (history).
//
// # Needs
//
// python3 with venv, node and npm, which are not part of Go's toolchain. If one of them is missing,
// its tests are skipped, or fail if CI is set. The packages are installed once, into the user's
// cache directory, kubecdc/consumers-<hash of the pins>.
package consumers
