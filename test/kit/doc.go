// Package kit installs programs and packages of others for the tests that run them, once, into the user's cache directory. What is
// installed depends only on files of the repository that pin the versions.
//
// # Goroutines
//
// [Kit.Install] runs one while a step runs, which says every 15 seconds that it is still running.
package kit
