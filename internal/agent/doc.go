// Package agent runs an agent: it creates the stages of a configuration, connects them and ends
// them in order. [Run] is the command run without its flags, which are [Options]. Other commands
// use the parts that find the cluster, the checkpoint, the configuration, and the agent and the bus
// of this machine.
//
// Invariants:
//   - A shutdown ends the stages in the order of the data path: watches, queue, checkpoint, bus.
//     The checkpoint is saved after the drain.
//   - A stage that fails ends all of them. A relay that fails ends none: it is restarted, and
//     /readyz shows it.
//   - A changed configuration that the informers cannot apply leaves the previous one in force.
//
// [Run], [RunStages] and [RelayHost.Run] own their goroutines and return after all of them have
// ended.
package agent
