// Package claim has the code that all claim stores share, and the claim store in a directory. A
// claim is the whole of an event that is too large for the bus; the event on the bus refers to it.
// publish.ClaimStore is the contract. The stores of a bus or protocol are in its package: the
// object store of NATS in nats, the store over HTTP in http.
//
// # Invariants
//
//   - Put returns a reference only after the claim is durable. A claim is never stored in part
//     under its name.
//   - A claim store that is away or full is retried until ctx ends. Each kind of failure is logged
//     once per window, and counted as claim_store in kubecdc_publish_retries_total.
//   - The fence is checked before each attempt, and again before a claim gets its name.
//
// The package starts no goroutines, and never logs a claim's content.
package claim
