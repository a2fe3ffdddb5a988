// Package stdout publishes structured events as JSON lines to a stream of bytes. A written line
// counts as acknowledged.
//
// # Invariants
//
//   - Each line is one call of Write, in the order of Publish.
//   - An error of the stream (the reader of a pipe has gone, the disk is full) is final, because
//     half a line may have been written. All further events end with it.
//   - If the stream is a file with a partial last line, a newline precedes the first line.
//   - Run returns when its context ends, even if Write blocks on a pipe or a stopped terminal. The
//     event ends with publish.ErrClosed. Write cannot be interrupted, so its goroutine ends only
//     after it. Nothing more is written.
//
// # Goroutines
//
// Run and the writer.
package stdout
