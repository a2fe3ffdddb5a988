// Package encode converts deltas to CloudEvents: an [Encoder] turns an object.Delta into an
// [Event]. The event has the attributes and, as the event contract defines, the object before, the
// object after and the RFC 6902 patch between them.
//
// The package is pure: the same delta and the same options always give the same bytes. It does no
// I/O, reads no clock, does not import client-go and starts no goroutine.
//
// Objects stay raw. Their JSON is spliced into the event unchanged, and package patch compares it
// as bytes; the package never decodes a tree. All output is appended to buffers of the Event, which
// its worker reuses.
//
// An error means that a delta violates the contract (an update without its object before, no uid),
// or corrupted memory. It is permanent: retries do not help.
package encode
