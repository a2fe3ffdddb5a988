// Package answer answers questions about the past of objects from a record. The answers are the
// objects of a moment, what differs between two moments, the versions of objects, who set each line
// of an object, and whether a span is complete.
//
// Each answer has a certainty, an Assessment. A wrong question has the error UsageError. The caller
// shows an answer first, and then returns ErrNotExact (CheckExact) or ErrNotProven.
//
// A Question belongs to one goroutine, except that package serve/views reads several moments at a
// time. The package prints nothing, opens no bus and parses no flags.
package answer
