// Package versions has the table of the servers that kubecdc works with. It names the versions that
// the tests run with, the oldest ones that are meant to work, and those that lose data. `make
// test-versions` runs the tests, and docs/reference/compatibility.md has the dated results.
//
// It starts no goroutines and has no state.
package versions
