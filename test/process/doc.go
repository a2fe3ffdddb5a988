// Package process runs parts of a test, benchmark or demo as processes of their own, which end with it, and reads what
// they cost from the kernel: it measures any program, without its help.
//
// Each process has one goroutine, which ends when the process does.
package process
