// Package bustest has the parts that tests of several buses share: an embedded NATS server, a
// proxy that interferes with connections, events, and a log that tests can read. It also checks for
// goroutines that are left.
package bustest
