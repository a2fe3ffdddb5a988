// Package live compares the state at a moment with the objects of a running cluster.
//
//	API server ──list──▶ Cluster.Compare ──▶ differences
//	                          ▲
//	        timeline.State ───┘
//
// An object with the uid and the resourceVersion of the state is the same. Others are read in the API version of the record, so that
// two versions of one schema are compared.
//
// # Invariants
//
//   - Only the scopes of the record are compared: their namespaces and selectors decide which objects of the cluster count.
//   - Values that the record does not have are removed from both sides. They are the paths that the caller names, those of the copies of an
//     object, and those that objects of the same uid and resourceVersion have in the cluster and not in the record.
//   - No value of a Secret is in a difference.
//   - The package writes nothing to the cluster, starts no goroutine and logs nothing.
package live
