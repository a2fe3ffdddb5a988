// Package e2e tests the agent from the outside: a real API server with a real etcd, a real bus, and
// the agent as a child process. It has no code besides its tests.
//
// test/oracle derives the expected records from etcd's history and judges those on the bus.
// test/world runs the parts. Tests of this package share a control plane unless they need other
// options; therefore they are one package, since go test runs each package in a process of its own.
//
// # The truth
//
// The API server serves at a revision the value in etcd plus the resourceVersion. TestTruth proves
// that with a stock watch beside the agent (world.Served).
//
// # Selections
//
// TestSelection draws configurations from a seed (test/oracle/selection) and compares the records,
// their contents and the counts of withheld events with what the rules say. TestPlantedSecrets
// searches for values, and parts of them, in everything that leaves an agent.
//
// # Faults
//
// TestFaults draws faults from a seed (allFaults) and injects them one by one into the agent and
// the processes that it talks to, through proxies (world.Stage). The expected records are the same
// over several lives of an agent, except that snapshots repeat and that gap events report what was
// lost; each of these needs a cause (oracle.JudgeLives).
//
// # Progress
//
// The tests TestProgressOf… disturb the path, the process and the clock of an agent for a known
// time. The progress must report that time for the scopes concerned, and for no others. At each
// moment that it calls known, a list of the API server equals the table of the records
// (oracle.Observers, oracle.TableAt).
//
// # Questions
//
// TestTruthByQuestion lists resources at many revisions, under all kinds of faults, and later asks
// the record for them (inquiry). It judges the answers: an exact one is the LIST, and the least
// shares of exact ones are questionFloors. Answers beside a fault need not be exact (topic.excuse,
// topic.setAside). The same answers must fail if they are all called exact, and if none is. make
// test-truth runs it for long, and with a former version of Kubernetes.
//
// # Upgrades
//
// TestUpgrade runs the agent of an earlier commit (agentBefore), that of this tree and the earlier
// one again on one checkpoint. The first run builds the earlier agent and keeps it in the user's
// cache directory. Configurations of these tests use only keys that both know.
//
// # Tiers and sizes
//
// With -short, only the tests of make check run: those that do not call slow. size selects how
// large a test is: small in that tier and under the race detector, large with KUBECDC_E2E_LONG,
// otherwise large enough to show the behavior. A test that mostly waits, or has its own control
// plane, runs in parallel with others. Some tests run alone and do not call t.Parallel: tests that
// measure memory, that restart brokers under load, or whose agents observe all namespaces of the
// shared control plane.
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
//	TRUTH=d                 has TestTruthByQuestionForLong and TestTruthByQuestionOfAnOlderServer write for the time, 30m for example
//	MEMORY=n                has TestMemory stop the bus for n seconds, with its largest loads
//	KUBECDC_KAFKA=require   fails the tests of Kafka where no broker can be had; skip: skips them everywhere
//	NODES=n                 is how many brokers the tests of Kafka have (1)
package e2e
