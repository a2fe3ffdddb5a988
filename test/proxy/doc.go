// Package proxy is a TCP proxy that injects network faults in tests. It resets and refuses
// connections, holds, delays and truncates data, and switches between backends. It does not
// interpret the data, so it can forward TLS. A [Filter] can.
//
//	p, err := proxy.Listen("127.0.0.1:6443", "127.0.0.1:6444")
//	if err != nil { … }
//	g.Go(func() error { return p.Run(ctx) })
//	p.Prefer(1) // of two backends
//	p.Cut()     // clients must reconnect
//
// # Invariants
//
//   - Bytes arrive unchanged and in order, or not at all. Data held by [Proxy.Hold] is forwarded
//     afterwards, unless the connection is cut.
//   - A connection that the proxy ends is reset. One that a client or backend closes is closed
//     normally.
//   - The address does not change while Run runs.
//
// # Goroutines
//
// Run has one goroutine that accepts connections. Each connection has one that dials and two that
// copy, each with a buffer of 32 KiB. All have ended when Run returns.
package proxy
