// Package jsonscan walks JSON in place, without building a tree. It is the only scanner of JSON in
// the program: whatever reads objects, events or patches as bytes is built on it.
//
//   - The functions Skip* find the end of a part, and check it as strictly as encoding/json.Valid.
//   - [Members] reads a document member by member.
//   - [Escaped], [AppendUnescaped] and [AppendString] convert between the text of a string and its
//     form in JSON, as encoding/json does: each byte of invalid UTF-8, and each half of a broken
//     surrogate pair, becomes U+FFFD.
//
// Invariants: no function allocates in proportion to the nesting of a document or recurses with it,
// none modifies its input, and none panics, whatever the input. Results alias the input.
package jsonscan
