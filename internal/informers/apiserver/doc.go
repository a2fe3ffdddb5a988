// Package apiserver reads raw JSON from a Kubernetes API server, on client-go's rest client.
//
//   - Client makes lists, watches and access reviews. Watches have their own transport, because
//     their small receive buffer would slow lists down. Each page of a list, and each Stream of a
//     watch, has time limits.
//   - ListSlots limits concurrent lists of all resources.
//   - Reason, IsGone, IsPermanent and others classify errors, so that a caller can decide whether
//     to retry.
//
// The package returns objects as bytes. It stores none, and retries nothing.
package apiserver
