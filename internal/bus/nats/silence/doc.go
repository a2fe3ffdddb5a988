// Package silence detects connections whose network path, or whose other end, swallows all data
// without an error.
//
// TCP does not report this in time. It repeats unacknowledged data for a quarter of an hour, and
// sends no keep-alive probes meanwhile. A client that sends data and waits for a response therefore
// waits that long.
//
// [Limit] makes reading fail if no data arrives for a time. It suits a protocol with pings: a NATS
// client sends a PING every five seconds, and a server answers it even if its streams are slow. Any
// data counts, so a PONG that waits behind records on a slow network ends no connection.
//
// The package starts no goroutine.
package silence
