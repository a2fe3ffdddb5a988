// Package suite prepares a test binary whose tests start processes: temporary files that no end of the binary leaves behind,
// tests that wait at the same time, and an error for tests that leave files or processes.
//
// # Goroutines
//
// None. [Begin] starts one process, which ends after the test binary.
package suite
