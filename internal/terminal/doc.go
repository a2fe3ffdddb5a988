// Package terminal knows what a person's terminal can do: colours, size, redrawing; and writes logs and progress to it.
//
// An Output is shared by all that write to one terminal. A Progress keeps a region of lines below what the others write:
// Output.Write puts their lines above it and draws it again in the same write, under one lock, so neither tears the other.
//
// The cursor rests at the region's first line, which is blank. So erasing it takes no arithmetic that a resized terminal
// would break, text that others leave there (the ^C of a person) is harmless, and there is nothing to restore should the
// process be killed.
//
// What is shown comes from clusters and must not reach the terminal as escape sequences: everything that is not printable
// is escaped.
//
// The package starts no goroutines.
package terminal
