// Package localbus provides the bus of an agent without a configured one: a NATS server with
// JetStream in the agent's process. The server stores its records in a directory and listens on the
// loopback interface.
//
// # The directory
//
//	cluster.json  the cluster of the records; written once, before the first record
//	lock          locked (flock) by the agent that uses the directory; the kernel releases it when that process ends,
//	              however it ends
//	bus.json      pid, URL and token of that agent; valid only while the lock is held
//	jetstream/    the records, in nats-server's format: `nats-server -js -sd DIR` serves them without kubecdc
//
// # Invariants
//
//   - A directory holds the records of one cluster. Start rejects the directory of another cluster,
//     and one that has records but no cluster.json.
//   - One agent at a time uses a directory.
//   - Acknowledged records survive any end of the process: the server writes a record to its file
//     before it acknowledges it. It syncs the file every 10 s, which limits the loss if the machine
//     fails.
//   - The server listens on 127.0.0.1 only, and requires a token. Each start makes another one. It
//     is in bus.json (mode 0600), so only the agent's user and root can read, write and delete
//     records. `nats --context DIR/bus.json` connects with it. The log has no token.
//   - [Address.Token] returns the token only for the URL that the holder of the lock has announced.
//     Otherwise a program that takes the port after a run could obtain that of the next.
//   - Start and [At] reject a directory that another user could replace or write to.
//
// # Goroutines
//
// The server's own, from Start to the end of Close. The package starts none.
//
// # What it never does
//
// It handles no signals, serves no HTTP, creates no stream (the publisher does), and never deletes
// a record or a directory. To discard the records of a deleted cluster, delete its directory.
package localbus
