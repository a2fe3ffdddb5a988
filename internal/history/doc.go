// Package history answers questions about the past from a bus or a file: it reads from a consume.Source the events that a question needs,
// and no more where the source can leave events out, and folds them with package timeline.
//
//	words ──Resolve──▶ Selection ──States──▶ states of moments
//	                            └──Versions──▶ versions, as they are read
//
// For the state at a moment it looks at the stream events first, and finds the last snapshot of each scope that was completed by then.
// Reading begins with the first of these snapshots and ends when the record has passed the moment, or at its end.
//
// Names of resources are resolved by the record: by the CRDs in it, or by the resources of its stream events. No cluster is asked.
//
// # Invariants
//
//   - An answer is whole or an error: if records are removed while they are read, or if the bus stays away for longer than Patience, there is
//     no answer.
//   - Records that cannot be read, and objects that the record does not hold, are counted in Reading.
//   - The package starts no goroutine, logs nothing and prints nothing.
package history
