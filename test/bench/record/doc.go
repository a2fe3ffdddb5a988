// Package record describes the records that the contestants put on the bus, with their subjects and
// ids, and checks that all are there. Every contestant writes the same records to the same
// subjects, so that the bus costs the same for each of them.
package record
