// Package record answers questions about the past from a bus or a file. It reads the necessary
// events from a consume.Source, and only those if the source can omit events. It folds them with
// package timeline.
//
//	words ──Resolve──▶ Selection ──States──▶ states of moments
//	                            └──Versions──▶ versions, as they are read
//
// For the state at a moment it first reads the stream events, and finds the last snapshot of each
// scope that was completed by then. It then reads from the first of these snapshots until the
// record has passed the moment, or to its end.
//
// The record resolves names of resources: by its CRDs, or by the resources of its stream events. No
// request goes to a cluster.
//
// # Invariants
//
//   - An answer is complete or an error: there is no answer if records are removed during the read,
//     or if the bus is away for longer than MaxOutage.
//   - Reading counts unreadable records, and lists objects that are incomplete in the record.
//   - The package starts no goroutine, logs nothing and prints nothing.
package record
