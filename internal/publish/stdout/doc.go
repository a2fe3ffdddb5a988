// Package stdout publishes structured events as JSON lines to a stream of bytes. It takes each line that the stream took for acknowledged.
//
// # Invariants
//
//   - Lines are written whole, one call of Write each, in the order of Publish.
//   - An error of the stream (the reader of a pipe has gone, the disk is full) is final: half a line may have been written. All further events end
//     with it.
//   - Run returns when its context ends, although the reader of a pipe, or a stopped terminal, does not take the line. The event ends with
//     publish.ErrClosed. Nothing can interrupt the call of Write, so its goroutine ends only after it. Nothing more is written.
//
// # Goroutines
//
// Run: itself and the writer.
package stdout
