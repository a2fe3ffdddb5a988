// Package terminal detects the capabilities of a person's terminal (colours, size, redrawing), and
// writes logs and redrawn regions to it.
//
// All writers to one terminal share an Output. A Display keeps a region below the lines of the
// other writers. Output.Write puts their lines above it and draws it again in the same write, under
// one lock, so neither tears the other.
//
// Between writes the cursor is at the region's first line, which is blank. So erasing the region
// takes no arithmetic that a resized terminal would break. Foreign text there (a person's ^C) is
// harmless, and if the process is killed, there is nothing to restore.
//
// Displayed text comes from clusters and must not reach the terminal as escape sequences:
// Output.Write escapes all unprintable characters. The commands write to terminals only through an
// Output (Guard).
//
// The package starts no goroutines.
package terminal
