// Package publishtest has what the tests of several buses need: an embedded NATS server, a proxy that interferes with
// connections, events, a log that tests can read, and the check for goroutines that are left.
package publishtest
