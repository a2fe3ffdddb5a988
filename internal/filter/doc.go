// Package filter withholds deltas that nobody wants to have: by op, by a CEL expression, and by ready-made filters for
// the noise of a busy cluster.
//
// A Filter is that of one rule of the configuration. For gives what it does to one resource; an informer asks that of each
// delta right before it would be put into the queue.
//
// Invariants:
//   - Read, Entered and Left are never withheld by operations or by noise: what consumers know of the state hangs on them. An
//     expression is asked of every delta.
//   - Noise withholds updates only, and none in which anything differs that is not in its mask.
//   - Only what an expression touches is read: neither op, name nor labels need the object, changed and changedOnly compare its
//     bytes, and before and after are decoded member by member, as they are asked for. Nothing builds a tree of an object, but
//     for the equality of two values that are not the same bytes, and for converting one.
//   - An evaluation ends: its cost is limited, and costs count what the functions of this package, and operators that look at
//     whole objects and arrays, read.
//   - Nothing of an object gets into an error, a log line or a metric. CEL's own errors hold values and are told by kind.
//
// What is asked may be asked from any number of goroutines. The package starts none and does no I/O but logging.
package filter
