// Package wait is how the tests of this module wait: for a condition, up to a limit, with an error
// when the limit is reached. No test sleeps.
//
// It starts no goroutines: a condition is evaluated in the caller's.
package wait
