// Package certainty says how certain an answer about the past is: what lowers it, from when to
// when, and for which scope. All commands that read the record, and the API view, say it in these
// words and in this JSON.
//
//	Answer ──▶ Scope ──▶ Cause
//	           Level     Kind, From, To
//
// A Scope begins as Exact: the record proves the state. Each Cause lowers it to the Level of its
// Kind. An answer is as certain as its worst scope.
//
// The package knows no record, no bus and no clock. It does no I/O. Package timeline finds the
// causes that the record shows; package answer adds those of the reader.
package certainty
