// Package leader sees to it that of several agents one writes to the bus: who holds a Lease (coordination.k8s.io/v1) leads,
// the others stand by. The Lease is written as client-go's leaderelection writes it, so that kubectl shows who leads.
//
// # Invariants
//
//   - Never do the fences of two electors of a Lease pass at the same time, whatever processes are stopped, connections cut,
//     answers lost, and wall clocks set. It takes clocks that run at the same speed, to RenewDeadline in LeaseDuration: 4 s of the
//     one's clock must not last 6 s of the other's.
//   - A fence measures by itself, at each Pass: it passes for RenewDeadline from the moment when the request that renewed the
//     Lease was sent (not answered), by the monotonic clock and by the wall clock. A process that was stopped, or a machine that was
//     suspended (which stops the monotonic clock), finds out before it writes. Not so one that is suspended and whose wall clock
//     is set back by as much before it has renewed the Lease again.
//   - Others begin LeaseDuration after they have seen the Lease change last, at the earliest. That is later than the request was
//     sent which changed it, so the clocks of two machines are never compared.
//   - A Lease that is not there is no free Lease: somebody may have deleted it while its holder leads. A standby creates it for
//     nobody, and takes it when it has not changed for LeaseDuration; its holder takes it back at once if its fence still passes. So
//     does a Lease whose holder's name somebody has removed keep others off: only who gives it back in order (Release) writes
//     leaseDurationSeconds 1.
//   - Losing touch is no loss: the fence is shut, and opens again when the Lease is renewed on condition that nobody else has
//     written it since, which tells that nobody has led in between. Where somebody has, the elector is done for: Run returns an
//     error that wraps ErrLost.
//   - The number of a term, leaseTransitions + 1, grows with each other holder for as long as the Lease is there. (Where somebody
//     has deleted it and nobody was there to see, numbers begin anew: the checkpoint knows the last one, and whoever takes that
//     over goes on from it.)
//
// # Why not client-go's elector
//
// It ends when it cannot renew, where this one pauses; it takes the moment of the answer for that of the renewal; it creates a
// Lease that was deleted at once, while its holder may lead; and it cuts fractions of seconds off the duration that others wait.
// The Lease that both write is the same: they can be mixed, and what is said above then holds between ours.
//
// # Goroutines
//
// Elector.Run is one of the caller's, and there is no other. It never does anything to the Lease but get, create and update it.
package leader
