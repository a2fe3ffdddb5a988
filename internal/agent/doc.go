// Package agent has the parts of a running agent that connect the stages. These are the order in which stages end, the informers
// of a configuration, and the relays beside the stages. It reads no flags.
//
// Invariants:
//   - A shutdown ends the stages in the order of the data path: watches, queue, checkpoint, bus. The checkpoint is saved after the queue is drained.
//   - A stage that fails ends all of them. A relay that fails ends none: it is started again, and /readyz shows it.
//   - A changed configuration that the informers cannot apply leaves the previous one in force.
//
// [RunStages] and [RelayHost.Run] own their goroutines and return after all of them have ended.
package agent
