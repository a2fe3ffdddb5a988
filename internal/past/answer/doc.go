// Package answer answers questions about the past of objects from a record, and prints the answers.
// They are the objects of a moment, what differs between two moments, the versions of objects, and
// who set each line of an object.
//
// Each answer has a certainty, which is printed on standard error and is part of JSON. A wrong
// question has the error UsageError; an answer that was printed and is not exact has ErrNotExact.
//
// A Question belongs to one goroutine. While it reads the record, a second goroutine shows the
// progress at a terminal, and ends before the method returns. The package opens no bus and parses
// no flags.
package answer
