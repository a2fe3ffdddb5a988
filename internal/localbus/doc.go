// Package localbus is the bus of an agent that was given none: a NATS server with JetStream in the agent's own process,
// which keeps its records in a directory and listens on the loopback interface.
//
// # The directory
//
//	cluster.json  which cluster the records are of; written once, before there are any
//	lock          locked (flock) by the agent that uses the directory; the kernel lets go of it when that process ends,
//	              however it ends
//	bus.json      pid and URL of that agent; of use only while the lock is held
//	jetstream/    the records, as any nats-server has them: `nats-server -js -sd DIR` serves them without kubecdc
//
// # Invariants
//
//   - A directory holds the records of one cluster. Another cluster's agent is refused, and so is one that finds records
//     and no cluster.json.
//   - One agent at a time uses a directory.
//   - What has been acknowledged survives the end of the process by any means: the server writes a record to its file
//     before it acknowledges it. Against the end of the machine it syncs every 10 s.
//   - Nothing but 127.0.0.1 is listened on. There is no authentication, on purpose: `nats sub`, `kubecdc tail` and every
//     quick start of a client library work as they are. It means that every user and process of this machine can read the
//     records, and delete them. Where that is too much, run a NATS server with accounts and name it with --bus.
//
// # Goroutines
//
// The server's own, from Start to the end of Close. The package starts none.
//
// # What it never does
//
// It takes over no signals, serves no HTTP, makes no stream (the publisher does), and never deletes a record or a
// directory: a cluster that is gone is forgotten by deleting its directory.
package localbus
