// Package http publishes events to a receiver by the CloudEvents HTTP binding 1.0: structured,
// binary or, with Config.Batch, batched. A status of 2xx is the acknowledgement. The package also
// has the HTTP claim store, and the client for collectors of traces.
//
// # Invariants
//
//   - An event ends once, and none of its bytes is read afterwards. net/http may read a request's
//     body after RoundTrip has returned: it reads through a window that is closed before the event
//     ends.
//   - A request whose outcome is unknown (no response in time, a connection that was cut) is sent
//     again with the same bytes. Only an event that has to be isolated is handed back.
//   - The fence is checked before each request, and again before each write to a socket.
//   - No error and no log line contains headers, the token, or the URL's path and query.
//
// # Outcomes of a request
//
//   - 413 refuses the event as too large. Any other 4xx except 401, 403, 404, 407, 408, 425 and 429
//     refuses it.
//   - 429, 503, a receiver that cannot be connected to, and unreadable files close the throttle:
//     all events wait, and one request at a time tries, until one gets through.
//   - A request that was cut is retried on a separate connection. If that is cut too, the event is
//     handed back, to be sent alone. The event may be the cause; so may a restart, a limit of
//     connections, or another event on the same HTTP/2 connection. An event that is sent alone is
//     tried on a separate connection first, and then on a shared one.
//   - An event above 64 KiB that was cut uses Expect: 100-continue on its separate connection: a
//     receiver that does not read too large bodies can respond with 413 before the body is sent.
//   - A request without a response or progress for ten seconds stays in flight until its timeout.
//     Meanwhile copies are sent, each on a new connection, and the first response counts. The ten
//     seconds become twice the time of recent responses if that is longer. After copies, or after a
//     timeout, no request uses a connection that was idle before. With HTTP/2, pings find dead
//     connections, and no copies are sent.
//   - 401, 403 and 404 to more than eight requests in a row, with none accepted in between,
//     indicate a wrong configuration: they close the throttle. Otherwise the event is retried once,
//     and then handed back, to be sent alone.
//   - After any other response, the event is handed back, to be retried later.
//   - The events of a batch that was refused, cut or failed are sent one by one.
//
// # Sending
//
// A sender makes each request: up to 256 for requests of one event, 4 for batches, and one for
// denied events. Senders are started on demand and end when nothing waits. A batch takes the events
// that wait at that moment; it does not wait for more. Batches grow as responses take longer.
// Bodies are not copied. The callers have one event of a key in flight, so the order per key holds
// in whatever order requests are sent and answered.
//
// # Goroutines
//
// The senders end before Run returns. net/http has two goroutines for each connection, which end
// soon after it is closed.
package http
