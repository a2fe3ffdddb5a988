// Package object defines the types of the pipeline (objects, deltas, stream events) and processes
// the JSON of objects without building a tree.
//
// Data flow: Frames splits a watch stream into objects, and Items a page of a list. A Scanner makes
// one pass over the bytes: it reads the metadata that the pipeline needs, cuts the stripped paths
// and replaces the redacted values. A Codec compresses the result to a few hundred bytes, which an
// Object holds while it is the last known version. If several rules may select an object, Head.Peek
// and Locate read the selected fields before the scan. Filters compare two versions of an object by
// SameBut and SameAt.
//
// Invariants:
//   - Scan returns one valid JSON object, checked as strictly as encoding/json.Valid, so that it
//     can be spliced into an event unchanged. Frames and Items find the end of a value and check
//     everything around it; Scan checks the inside of an object.
//   - Names are compared as encoding/json decodes them (escapes, invalid UTF-8, the last of
//     duplicates). A cut member is therefore invisible to every reader, however its name was
//     written.
//   - Nothing that Scan returns contains a redacted value, so neither an Object nor a Codec's
//     sample ever holds one. The value is either removed or replaced by the output of a MAC. The
//     key of a MAC is never printed.
//   - Cutters with the same Fingerprint produce the same bytes for an object.
//   - A version of an object has the same bytes whether it was listed or watched.
//   - An Object and a Codec are immutable and may be shared. A Scanner, Frames and Items belong to
//     one goroutine, and their results are valid until their next call only.
//   - Memory depends on the size of the largest value in flight, not on the size of a list or a
//     stream.
//
// The package starts no goroutines, does no I/O beyond the io.Reader that it is given, logs
// nothing, does not import client-go, and never modifies its input.
package object
