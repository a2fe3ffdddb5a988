// Package clock gives the times of a run of the agent. Each event has one, and readers order what
// they read by them. So they never go back, whatever happens to the wall clock.
//
// A [Clock] compares the wall clock with the monotonic clock at each reading. Run takes one every
// half second, so that a quiet cluster shows a step too.
//
//   - If both have moved by less than a second apart within a minute, the times follow the wall
//     clock: NTP may slew it, or set it by fractions of a second. Nothing accumulates, because the
//     times have no base of their own. If the wall clock is set back by less than a second, they
//     stand still until it has passed them.
//   - A larger difference is a step, and an [Interruption]: what happened at which time is not
//     known there. After a step forward the times continue with the wall clock. After a step back
//     they stand still until it has passed them.
//   - The monotonic clock stands still while a machine is suspended, and the wall clock does not.
//     So a suspension is a step too, from the last reading before it. CLOCK_BOOTTIME would only
//     give it another name.
//   - If a reading is two seconds late, the process stood still (SIGSTOP, a paused machine, no
//     CPU), which is an Interruption too.
//
// [Clock.Begin] makes a run begin no earlier than the last time of its predecessor. If the
// predecessor's clock was ahead, the times stand still until the wall clock has passed that.
//
// The package reads no clock other than that of its machine; package apiserver compares it with the
// API server's. It runs the goroutine of Run's caller only, and never waits.
package clock
