// Package proxy is a TCP proxy for tests that hurts those who talk through it: it cuts and refuses connections, swallows what
// is sent, delays it, breaks it off in the middle, and leads to another backend. It knows nothing of what it carries, so
// that TLS passes through; a [Filter] may.
//
//	p, err := proxy.Listen("127.0.0.1:6443", "127.0.0.1:6444")
//	if err != nil { … }
//	g.Go(func() error { return p.Run(ctx) })
//	p.Prefer(1) // of two backends
//	p.Cut()     // and whoever is there connects anew
//
// # Invariants
//
//   - Bytes arrive as they were sent, in order, or not at all: what is held back while [Proxy.Hold] is on comes afterwards,
//     unless the connection is cut.
//   - A connection that ends because of the proxy ends with a reset; one that an end closes is closed in good order.
//   - The address stays the same as long as Run does.
//
// # Goroutines
//
// Run has one that accepts, and for each connection one that dials and two that copy, each with a buffer of 32 KiB. All
// have ended when Run returns.
package proxy
