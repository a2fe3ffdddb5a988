// Package filter suppresses unwanted deltas: by op, by a CEL expression, and by ready-made filters
// for the noise of a busy cluster.
//
// A Filter belongs to one rule of the configuration. For returns its form for one resource; an
// informer applies it to each delta right before it queues the delta.
//
// Invariants:
//   - Operations and noise never withhold Read, Entered and Left: consumers derive the state from
//     them. An expression is evaluated for every delta.
//   - Noise withholds only updates in which nothing outside its mask differs.
//   - An evaluation reads only the data that the expression uses. op, name and labels do not need
//     the object; changed and changedOnly compare its bytes; before and after are decoded member by
//     member. A tree of an object is built only to compare two values with different bytes, or to
//     convert one.
//   - An evaluation ends: its cost is limited, and the cost includes the reads of this package's
//     functions, and of operators that read whole objects and arrays.
//   - Errors, log lines and metrics never contain data of an object. CEL's own errors contain
//     values, so only their kind is reported.
//
// The methods are safe for concurrent use. The package starts no goroutines and does no I/O except
// for logging.
package filter
