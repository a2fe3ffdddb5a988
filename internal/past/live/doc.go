// Package live compares the state at a moment with the objects of a running cluster.
//
//	API server ──list──▶ Cluster.Compare ──▶ differences
//	                          ▲
//	        timeline.State ───┘
//
// An object with the uid and the resourceVersion of the state is unchanged. Others are read in the
// API version of the record, so that both versions have the same schema.
//
// # Invariants
//
//   - Only the scopes of the record are compared: their namespaces and selectors determine which
//     objects of the cluster count.
//   - Values that the record does not have are removed from both sides. Their paths are those that
//     the caller names, those of copies of an object, and those that an object of the same uid and
//     resourceVersion has only in the cluster.
//   - An object that the record lacks is left out if no scope that selects it can capture it: it is
//     the agent's own.
//   - If the caller does not know all these paths, a live value is kept only where the record has a
//     value of the same object at the same path.
//   - No difference contains a value of a Secret.
//   - The package writes nothing to the cluster, starts no goroutine and logs nothing.
package live
