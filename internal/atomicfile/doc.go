// Package atomicfile replaces files: a reader, also one after a crash of the machine, finds the old content or the new one, never a
// part. It starts no goroutine and takes no lock.
//
// The caller opens the temporary file. With a lock of its own it takes a fixed name, so that a process that was killed leaves at most
// one file. Without a lock it takes a unique name (os.CreateTemp).
package atomicfile
