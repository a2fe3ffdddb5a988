// Package object is the vocabulary of the pipeline (objects, deltas, stream events) and the code that handles an
// object's JSON without ever building a tree of it.
//
// An object's way through the package: Frames finds it in a watch stream and Items in a page of a list, a Scanner
// reads the metadata that the pipeline needs, cuts what is stripped and replaces what is redacted in one pass over the
// bytes, and a Codec packs what is left into the few hundred bytes that an Object holds for as long as it is the last known
// one. Where several rules may take an object, Head.Peek and Locate read what they ask for before that. Filters compare
// two versions of an object by SameBut and SameAt.
//
// Invariants:
//   - What Scan returns is one valid JSON object, exactly as strictly as encoding/json.Valid has it, so that it can be
//     spliced into an event as it is. Frames and Items find where a value ends and check everything around it, but
//     leave the inside of an object to Scan.
//   - Names are compared as encoding/json decodes them (escapes, invalid UTF-8, the last of duplicates), so what is cut
//     is gone for every reader, however it was written.
//   - A value that is redacted is in nothing that Scan returns, so neither an Object nor a Codec's sample ever holds it: in
//     its place stands nothing, or what a MAC makes of it. A MAC's key is in nothing that is printed.
//   - Cutters of one Fingerprint make the same bytes of an object.
//   - A version of an object has the same bytes whether it was listed or watched.
//   - An Object and a Codec are immutable and may be shared; Scanner, Frames and Items belong to one goroutine, and
//     what they return is valid until their next call only.
//   - Memory follows the size of the largest value in flight, never the size of a list or of a stream.
//
// The package starts no goroutines, does no I/O beyond the io.Reader it is given, logs nothing, imports no client-go,
// and never changes bytes that it was given.
package object
