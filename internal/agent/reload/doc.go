// Package reload applies a changed configuration file to a running agent: after a change of the
// file or of a key that it names, or on SIGHUP.
//
// Invariants:
//   - A file that is wrong, or that changes a key that needs a restart, changes nothing: the
//     previous one stays in force, and the log, the status and a metric report it.
//   - A file is applied after two equal readings in a row, because it may be incomplete while it is
//     being written.
//   - The content of a key reaches neither log nor status.
//
// [Reloader.Run] is the only goroutine.
package reload
