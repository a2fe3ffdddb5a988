// Package splice is a reference without features: no client-go, no decoding, and no store except
// the last bytes of every pod. It reads frames, finds four metadata fields, and puts the bytes of
// before and after into an envelope. It shows the least cost of the transport and the bus in one
// goroutine, on this machine, in this run.
//
// It relies on what the feed sends: one frame a line, metadata first and its members in the API
// server's order. It does not resume: an ended watch is an error.
package splice
