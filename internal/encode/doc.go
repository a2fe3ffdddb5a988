// Package encode makes CloudEvents of deltas: an [Encoder] turns an object.Delta into an [Event], the envelope around
// the object before, the object after and the RFC 6902 patch between them, as the event contract promises it to consumers.
//
// It is pure: the same delta and the same options give the same bytes, whichever worker encodes them and how often.
// It does no I/O, reads no clock, knows nothing of client-go and starts no goroutine.
//
// Objects stay raw. Their JSON is spliced into the event as it is, and [AppendPatch] compares it as bytes; nothing here
// decodes a tree. All output is appended to buffers that belong to the Event, which its worker uses again.
//
// An error means a delta that breaks the contract (an update without its object before, no uid) or damaged memory: it
// comes back each time, and no retry helps.
package encode
