// Package fromfile reads the events of kubecdc from JSON lines: File is a consume.Source, and
// NewLines reads from an io.Reader. It starts no goroutines.
package fromfile
