// Package yamldoc decodes a YAML document into Go values strictly, and reports all of its errors at
// once, each with path, line, column and an excerpt. It does not know the meaning of the keys.
//
// A struct is a mapping: the tag "yaml" of a field has its key. A [Defaulter] sets its own defaults
// before its keys are decoded. A [Switch] may also be true or false. An [Enum] is one of a few
// words. A value with UnmarshalText is a scalar; [Duration], [Bytes] and [Ratio] are such values.
//
// Invariants:
//   - No key is ignored: an unknown one is an error, with the key that was probably meant.
//   - ${NAME} is expanded after parsing and inside scalars only: the value of a variable cannot
//     change the structure.
//   - Text that may be a secret is masked in errors. What came from a variable is replaced by
//     ${NAME}.
//   - A document is limited to [MaxBytes], to 64 levels and in the lengths of its keys, before it
//     is parsed.
//
// It reads no file, asks the environment only through Options.Lookup, and starts no goroutine.
package yamldoc
