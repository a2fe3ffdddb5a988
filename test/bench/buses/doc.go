// Package buses compares the agent's publishing path with a bare client. Both send the same
// records, with the same keys and headers and the same acknowledgements, to the same server in one
// run.
//
// [Bare] sends events that were encoded beforehand, with as many in flight as is usual for its
// client. [Ours] runs the part of the agent after its queue: deltas of compressed objects, the
// encoder, the pump and the publisher, with one event in flight per object. So Ours does more work,
// and has a limit that Bare does not have.
//
// [Publisher] measures only the publisher of that path. Its events are encoded beforehand, too.
//
// All run one after the other in the caller's process. The servers are separate processes.
package buses
