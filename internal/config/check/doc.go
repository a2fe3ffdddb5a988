// Package check has the rules that keys of several parts of the configuration share: ranges,
// choices, paths of files, URLs, and secrets that must not be sent unencrypted. Each rule returns
// the errors of one key. No error repeats a value that may be a secret.
//
// It is pure: it opens no file and starts no goroutine.
package check
