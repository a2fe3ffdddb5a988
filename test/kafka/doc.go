// Package kafka runs Apache Kafka as local processes, for tests: one or more nodes in KRaft mode, each broker and
// controller in one, on free ports of 127.0.0.1 with a data directory of its own. No Docker, no ZooKeeper.
//
//	cluster := kafka.Start(t, kafka.Options{Nodes: 3})
//	cluster.CreateTopic(t, "objects", 3, nil)
//	leader, err := cluster.Leader(t.Context(), "objects", 0)
//	cluster.Node(leader).Kill()
//
// [Start] skips the test where no broker can be had ([Available]), and fails it where the environment says
// KUBECDC_KAFKA=require; KUBECDC_KAFKA=skip skips it everywhere. [New] is the same without a test.
//
// # Jars
//
// The broker and Java's console tools are Maven artifacts (testdata/pom.xml), which mvn copies into the user's cache
// directory, kubecdc/kafka-<hash>, once: seconds, and some more for an archive of loaded classes, which halves what a
// broker takes to start (2 s instead of 4 s on two cores). Later runs need the JDK only.
//
// # Listeners
//
// A node listens for brokers, for controllers and for clients, in plain text. What clients are told to connect to can be
// somebody else ([Options].Advertise): a proxy that a test can cut. The listener of the brokers answers clients too, and
// no proxy is in its way: [Cluster.Inside], for what a test reads and asks on its own. With [Options].Secure there are
// four more, see [Listener].
//
// # Invariants
//
//   - Addresses outlive processes: a node that is killed and started again has the same ports and the same data.
//   - A process ends with the process that started it, on Linux also when that one is killed (package process), and by the
//     handle it was started with, never by name.
//   - Nodes write to files in the cluster's directory only. When one does not get ready, the end of its log is in the error.
//   - No secret is in a command line; passwords and keys lie in the cluster's directory.
//
// # Sizes of this package's tests
//
// Variables of the environment make the tests longer, as make test-long does:
//
//	NODES=3           nodes of the clusters of which a test takes the leader
//	LEADERS=4,400     how often the leader of a partition is killed, and versions of each object
//	ROTATIONS=3       how often the certificates are replaced
//	AT_REST=20,12,10  namespaces, partitions and scopes of an agent at rest
//
// # Goroutines
//
// One for each running process, which waits for its end. They are gone when [Cluster.Stop] returns.
//
// Everything is meant to be thrown away: small heaps, no fsync, an internal listener that anyone on 127.0.0.1 may use.
package kafka
