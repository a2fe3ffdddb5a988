// Package kit installs programs and packages of others for the tests that run them, once, into the
// user's cache directory. Files of the repository pin the versions, and nothing else decides which
// ones are installed.
//
// # Goroutines
//
// [Kit.Install] runs one while a step runs, which says every 15 seconds that it is still running.
package kit
