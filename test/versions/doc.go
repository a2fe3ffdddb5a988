// Command versions runs the tests on the versions of Kubernetes, NATS, Kafka and kine that people
// run. It is what `make test-versions` runs. With --update it writes the results, with the date, to
// docs/reference/compatibility.md.
//
//	go run ./versions --nats 2.10.27,2.15.3 --kubernetes none --kafka none
//
// A flag without a value selects all pinned versions; "none" selects none. Servers are built, or
// installed, once, in the user's cache directory.
package main
