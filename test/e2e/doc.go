// Package e2e proves the agent from the outside: a real API server with a real etcd beneath it, a real bus, and the agent as
// a process of its own that knows nothing of the tests. It has no code besides its tests.
//
// # The oracle
//
// etcd's own history is the truth. A watch on etcd from its first revision (history) gives every version of every
// object; from it and from what the agent was told to observe (view) follows, one by one, which records have to be on
// the bus (expectation). The verdict compares these with the records that are there. What the API server serves at a
// revision is etcd's value plus the resourceVersion; TestTruth does not take that for granted but proves it with a stock
// watch beside the agent (served).
//
// # Buses
//
// A destination is a bus, and how it is read by a client that is not the agent's: JetStream, alone or as a cluster of three
// (nats.go), Kafka (kafka-go, partition by partition) and an HTTP receiver (the CloudEvents SDK). Where a bus keeps order
// only within several lanes, as Kafka does in partitions, each lane is judged like a stream of its own, against what is wanted
// of the objects that belong there; nothing is asked of the order between lanes, but each has to have all stream events
// (lanes). What is too large for the bus is fetched by its reference and judged as a whole; what is in the dead letters is
// missing on the bus, and just that may be, if a gap event says so (letter).
//
// # Selections
//
// TestSelection draws configurations (picked), each with rules in order per object, filters, redaction and what is stripped. Two
// things are written of each selector, expression and path: the text for the agent, and what it means, in Go, over etcd's values as
// encoding/json decodes them (choose). Nothing of the agent's code takes part. The records have to be just those, with the
// contents and the counts of what was withheld. TestPlantedSecrets looks for values, and parts of them, in everything that leaves
// an agent (haystack).
//
// # Faults
//
// TestFaults does one bad thing after the other to an agent and to those it talks to, as drawn from a seed (allFaults), over
// proxies that stand wherever two of them talk (stage). Over several lives of an agent the truth is the same, except that
// snapshots come in again (livesView) and that gap events say what could not be read: judge excuses what they cover, and
// judgeLives sees to it that nothing is called lost without a reason.
//
// # Upgrades
//
// TestUpgrade runs the agent of an earlier commit (agentBefore), that of this tree and the earlier one again on one checkpoint. The first
// run builds the earlier one and keeps it in the user's cache directory. Configurations of these tests use only keys that both know.
//
// # Goroutines and processes
//
// A plane runs its control plane's processes and one goroutine that reads etcd's history, an agent is a process and the
// goroutines that read its output, a stream reader is one goroutine. All end with the test that started them; the
// control plane that tests share ends with TestMain. Processes are ended by the handle they were started with.
//
// # Tiers and sizes
//
// With -short, only the tests of make check run: those that do not call slow. size says how large a test is: few in that tier
// and under the race detector, many with KUBECDC_E2E_LONG, else what shows the point. A test that mostly waits, or has a control
// plane of its own, runs in parallel with others. Those that measure memory, or whose agents observe all namespaces of the shared
// control plane, run alone: they call no t.Parallel.
//
// # Environment
//
//	KUBECDC_E2E_RACE=1      builds the agent with the race detector
//	KUBECDC_E2E_AGENT=path  takes this binary instead of building one
//	KUBECDC_E2E_LONG=1      takes the sizes of make test-long, leaves out each rule of what kubecdc rbac prints, and includes the
//	                        tests that take minutes
//	FAULTS=n                is how many faults TestFaults has (12), and includes the tests that take minutes
//	RECREATIONS=n           is how often the stream, and the topic, is deleted and created again under load (2)
//	FAILOVERS=n             is how often TestFailover takes the lead from an agent in each way (2)
//	SELECTIONS=n            is how many configurations TestSelection draws (3)
//	SELECTION_SEED=n        is the seed of the first of them (1); each further one has the next
//	FAULT_SEED=n            draws the same faults as the run that printed it; 1 with -short, else the time
//	MEMORY=n                has TestMemory stop the bus for n seconds, with its largest loads
//	KUBECDC_KAFKA=require   fails the tests of Kafka where no broker can be had; skip: skips them everywhere
//	NODES=n                 is how many brokers the tests of Kafka have (1)
package e2e
