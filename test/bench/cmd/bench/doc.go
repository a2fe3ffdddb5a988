// Command bench measures the agent against what a user would write by hand: same feed, same bus, same run.
//
//	go run ./bench/cmd/bench [--quick] [--agent ../bin/kubecdc]
//
//	go run ./bench/cmd/bench --buses all
//
// Each run starts a JetStream, a stand-in API server and one contestant, as processes of their own; lets the contestant
// read the pods, then a number of updates; and checks every record on the bus before its figures count. Contestants
// alternate, and of several repetitions the median counts. On a busy machine only ratios mean anything, which is why
// the goals are ratios where they can be.
package main
