// Command bench measures the agent against what a user would write by hand: same feed, same bus,
// same run.
//
//	go run ./bench/cmd/bench [--quick] [--agent ../bin/kubecdc]
//
//	go run ./bench/cmd/bench --buses all
//
// Each run starts a JetStream, a stand-in API server and one contestant as separate processes. The
// contestant reads the pods and then a number of updates. Every record on the bus is checked before
// the run's figures count. Contestants alternate, and the median of several repetitions counts. On
// a busy machine only ratios are meaningful, so the goals are ratios where possible.
package main
