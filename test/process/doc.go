// Package process runs parts of a benchmark or demo as processes of their own, which end with it, and reads what they
// cost from the kernel: it measures any program, without its help.
//
// Each Child has one goroutine, which ends when the child does.
package process
