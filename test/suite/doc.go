// Package suite prepares a test binary whose tests start processes. It removes temporary files
// however the binary ends, runs more tests in parallel, and reports files and processes that the
// tests leave.
//
// # Goroutines
//
// None. [Begin] starts one process, which ends after the test binary.
package suite
