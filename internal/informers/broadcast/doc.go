// Package broadcast wakes goroutines that wait for a condition, when the state that the condition
// depends on changes. It replaces polling.
//
//   - Signal wakes all waiters, and Mutex is a lock whose Unlock does so.
//   - Wake wakes the one receiver of a channel.
//
// # Invariants
//
//   - A waiter takes the channel of Next before it reads the state, so it misses no change: either
//     it reads the new state, or the channel is closed. A waiter may miss a state that lasted for a
//     moment only.
//   - A Notify without a waiter is two atomic operations, so it may be called for every event. No
//     function of the package blocks, except Lock, RLock and Wait.
//
// The package starts no goroutine.
package broadcast
