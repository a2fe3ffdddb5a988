// Package flink has the test that Flink's tables are the cluster's objects: what
// docs/guides/flink.md says, with a real Flink.
//
// The test runs if the variable FLINK is set: for how long objects change, "3m". `make test-flink`
// sets it.
package flink
