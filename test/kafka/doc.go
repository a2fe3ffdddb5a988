// Package kafka runs Apache Kafka as local processes, for tests: one or more nodes in KRaft mode,
// each a broker and a controller. They use free ports of 127.0.0.1 and a data directory of their
// own. No Docker.
//
//	cluster := kafka.Start(t, kafka.Options{Nodes: 3})
//	cluster.CreateTopic(t, "objects", 3, nil)
//	leader, err := cluster.Leader(t.Context(), "objects", 0)
//	cluster.Node(leader).Kill()
//
// KUBECDC_KAFKA_VERSION in the environment is another version of Kafka than that of the tests.
// Versions before 3.3 run with a ZooKeeper, one process for each cluster, and only the version of
// the tests can have [Options].Secure.
//
// [Start] skips the test if no broker is available ([Available]). With KUBECDC_KAFKA=require in the
// environment it fails the test instead, and with KUBECDC_KAFKA=skip it always skips it. [New] is
// the same without a test.
//
// # Jars
//
// The broker and Java's console tools are Maven artifacts (testdata/pom.xml). mvn copies them once
// into the user's cache directory, kubecdc/kafka-<hash>, which takes seconds. An archive of loaded
// classes takes some more, and halves the start of a broker (2 s instead of 4 s on two cores).
// Later runs need the JDK only.
//
// # Listeners
//
// A node listens for brokers, for controllers and for clients, in plain text. A test can give
// clients another address ([Options].Advertise), such as that of a proxy that it can cut. The
// listener of the brokers also accepts clients, without a proxy: [Cluster.Inside], for the test's
// own reads and requests. With [Options].Secure there are four more, see [Listener].
//
// # Invariants
//
//   - Addresses outlive processes: a node that is killed and started again has the same ports and
//     the same data.
//   - A process ends with the process that started it, on Linux also when that one is killed
//     (package process), and by the handle it was started with, never by name.
//   - Nodes write to files in the cluster's directory only. When one does not get ready, the end of
//     its log is in the error.
//   - No secret is in a command line; passwords and keys lie in the cluster's directory.
//
// # Sizes of this package's tests
//
// Variables of the environment make the tests longer, as make test-long does:
//
//	NODES=3           nodes of the clusters whose leader a test takes
//	LEADERS=4,400     how often the leader of a partition is killed, and versions of each object
//	ROTATIONS=3       how often the certificates are replaced
//	AT_REST=20,12,10  namespaces, partitions and scopes of an agent at rest
//
// # Goroutines
//
// One for each running process, which waits for its end. They are gone when [Cluster.Stop] returns.
//
// Everything is disposable: small heaps, no fsync, an internal listener that anyone on 127.0.0.1
// may use.
package kafka
