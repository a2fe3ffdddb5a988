// Package atomicfile replaces files: a reader finds the old content or the new one, never a part,
// even after a crash of the machine. It starts no goroutine and takes no lock.
//
// The caller opens the temporary file. If it holds a lock, it uses a fixed name, so that a killed
// process leaves at most one file. Otherwise it uses a unique name (os.CreateTemp).
package atomicfile
