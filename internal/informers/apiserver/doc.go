// Package apiserver reads raw JSON from a Kubernetes API server, on client-go's rest client.
//
//   - Client makes lists, watches and access reviews. Watches have a transport of their own, because their small receive buffer would slow
//     lists down. Each page of a list, and each Stream of a watch, has time limits.
//   - ListSlots limits how many lists of all resources run at a time.
//   - Reason, IsGone, IsPermanent and others classify errors, so that a caller can decide whether to retry.
//
// The package returns objects as bytes. It keeps no state of what it has read, and retries nothing.
package apiserver
