// Package leader ensures that only one of several agents writes to the bus: the holder of a Lease
// (coordination.k8s.io/v1) leads, the others are standbys. The Lease has the format of client-go's
// leaderelection, so that kubectl shows the leader.
//
// # Invariants
//
//   - The fences of two electors of one Lease never pass at the same time, even if processes are
//     paused, connections are cut, responses are lost, or wall clocks are changed. The only
//     assumption is that clocks run at about the same speed, within the ratio of RenewDeadline to
//     LeaseDuration: 4 s on one clock must not take 6 s on another.
//   - A fence measures the time at each Pass: it passes for RenewDeadline after the request that
//     renewed the Lease was sent (not answered), by the monotonic clock and by the wall clock. A
//     paused process, or a suspended machine (whose monotonic clock stops), notices before it
//     writes. The exception: a machine is suspended, and its wall clock is set back by the same
//     amount before it renews the Lease.
//   - A standby takes the Lease at the earliest LeaseDuration after it last saw a change. It sees a
//     change later than the request was sent that made it, so clocks of different machines are
//     never compared.
//   - A missing Lease is not a free Lease: it may have been deleted while its holder leads. A
//     standby creates it without a holder, and takes it when it has not changed for LeaseDuration;
//     the holder takes it back at once if its fence still passes. Likewise, a Lease whose holder's
//     name was removed is not free: only Release writes leaseDurationSeconds 1.
//   - A leader that cannot reach the Lease only pauses. Its fence opens again when it renews the
//     Lease with the precondition that nobody has written it since, which proves that nobody led in
//     between. Otherwise Run returns an error that wraps ErrLost.
//   - The epoch, leaseTransitions + 1, grows with each change of holder while the Lease exists. (If
//     the Lease was deleted while no agent ran, epochs start over; the checkpoint has the last one,
//     and the agent that takes it over continues from there.)
//
// # Why not client-go's elector
//
//   - client-go's elector exits when it cannot renew; this one pauses.
//   - It counts a renewal from its response; this one from the request.
//   - It creates a deleted Lease at once, while its holder may lead.
//   - It truncates the duration that standbys wait to whole seconds.
//
// Both write the same Lease, so they can be mixed: the invariants then hold between ours.
//
// # Goroutines
//
// The caller runs Elector.Run; there is no other goroutine. The elector only gets, creates and
// updates the Lease.
package leader
