// Package world provides what the tests of test/e2e run: control planes, buses, agents, proxies
// between them, and writers.
//
// # Parts
//
// A [Plane] is a real API server with a real etcd, and the oracle's history of that etcd. Tests
// without special options share one ([SharedPlane], or [BarePlane] without a controller manager),
// each with its own namespaces.
//
// An [Agent] is the agent as a child process. When a test ends, the agent must stop with exit code
// 0. Its log must contain no data race, no panic and no planted secret.
//
// A [Destination] is a bus that an agent writes to and a test reads. [Bus] is JetStream, alone or
// as a cluster of three. [Kafka] is read with kafka-go partition by partition. [Receiver] is an
// HTTP server that reads CloudEvents with their SDK. A [Stream] collects the records while they
// arrive.
//
// A [Stage] is a control plane, a bus and an agent with a proxy on each connection, for tests that
// break connections. [Writers] change objects as fast as the API server accepts it, [SteadyWriters]
// at a constant rate.
//
// [Check] waits for the expected records and reports the faults that the oracle finds.
//
// # Goroutines and processes
//
// A Plane runs its processes and one goroutine that reads etcd's history. An Agent is a process. A
// Stream has one goroutine for each reader of the bus. All end with the test that started them. The
// shared control planes end with [StopShared], which TestMain must call. Processes are stopped by
// their handle, never by name.
//
// A test binary that uses [StartBusProcess] must call [ServeBus] in TestMain if [AsBusEnv] is set.
// It then is the NATS server.
package world
