// Package patch computes and reads JSON patches (RFC 6902) of objects, without building trees of
// the objects. The agent sends the patch from one version of an object to the next; commands that
// show what has changed compute it again, or read it.
//
// The package is pure: two documents always have the same patch. It does no I/O, reads no clock and
// starts no goroutine.
package patch
