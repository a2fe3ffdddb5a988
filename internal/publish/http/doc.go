// Package http publishes events to a receiver by the CloudEvents HTTP binding 1.0: structured, binary or, with Config.Batch, batched. A status
// of 2xx is the acknowledgement. It also has the claim store behind HTTP, and the client for collectors of traces.
//
// # Invariants
//
//   - An event ends once, and none of its bytes is read afterwards. net/http may read a request's body after RoundTrip has returned: it reads
//     through a window that is shut before the event ends.
//   - A request whose outcome is not known (no answer in time, a connection that was cut) is sent again with the same bytes. Only an event that
//     has to be isolated is handed back.
//   - The fence is asked before each request, and again before each write to a socket.
//   - Headers, the token, and the URL's path and query are in no error and no log line.
//
// # What becomes of a request
//
//   - 413 refuses the event as too large. Any other 4xx except 401, 403, 404, 407, 408, 425 and 429 refuses it.
//   - 429, 503, a receiver that cannot be connected to, and files that cannot be read shut the throttle: all events wait, and one request at a
//     time tries, until one gets through.
//   - A request that was cut is tried again on a connection that carries nothing else. If that is cut too, the event is handed back, to be sent
//     alone. The event may be the cause; but also a restart, a limit of connections, or another event on the same HTTP/2 connection. An event
//     that is sent alone is tried on a connection of its own, and then on any.
//   - An event above 64 KiB that was cut asks with Expect: 100-continue on its own connection: a receiver that does not read what is too large can
//     answer 413 before the body is sent.
//   - 401, 403 and 404 to more than eight requests in a row, with none taken in between, are about the configuration: the throttle. Otherwise the event
//     is tried once more, and then handed back, to be sent alone.
//   - Anything else is handed back, to be tried later.
//   - The events of a batch that was refused, cut or failed go on one by one.
//
// # Sending
//
// Each request is made by a sender: up to 256 for requests of one event, 4 for batches, and one for events that were denied. Senders are
// started on demand and end when nothing waits. A batch takes the events that wait at that moment. None waits for a batch to fill: batches grow as
// the answers take longer. Bodies are not copied. The callers have one event of a key in flight, so the order per key holds in whatever order
// requests are sent and answered.
//
// # Goroutines
//
// The senders, which end before Run returns. net/http has two for each connection, which end moments after it is closed.
package http
