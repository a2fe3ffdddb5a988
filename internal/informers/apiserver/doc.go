// Package apiserver reads raw JSON from a Kubernetes API server, on client-go's rest client.
//
//   - Client opens lists, watches and access reviews. Lists and watches have transports of their own, so that the small receive
//     buffer of watches does not slow lists down. A list is read page by page, each page within time limits.
//   - ListSlots bounds how many lists run at a time over all resources.
//   - Reason, IsGone, IsPermanent and their like classify errors: what a caller retries, reports or gives up.
//
// The package knows resources and objects as bytes. It keeps no state of what it has read, and retries nothing.
package apiserver
