// Package natschild runs a nats-server of another version as a child process, for tests. The
// variable KUBECDC_NATS_SERVER names its file: `make test-versions` builds the versions and sets
// it. Without the variable, tests run the server of go.mod in their own process.
//
// # Goroutines
//
// One for each child, which waits for its end.
package natschild
