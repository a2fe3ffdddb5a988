// Package record knows what the contestants put on the bus: where, under which id, and how to tell that all of it is
// there. Every contestant writes the same records to the same subjects, so that the bus costs the same for each of them.
package record
