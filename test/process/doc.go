// Package process runs parts of a test, benchmark or demo as child processes, which end with their
// parent. It reads their CPU time and memory from the kernel, so it can measure any program.
//
// Each process has one goroutine, which ends when the process does.
package process
