// Package answers prints the answers of package past/answer: objects, differences, versions and
// reports as tables, text, JSON and YAML, each with its certainty on standard error.
//
// A Question belongs to one goroutine, except for SayCertainty and Show, which several may
// call. While the record is read, a second goroutine shows the progress at a terminal, and ends
// before the method returns. The package opens no bus, reads no record and parses no flags.
package answers
