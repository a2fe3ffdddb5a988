// Package console renders events for people: as lines like those of kubectl get -w, as differences
// in context, as JSON lines or as YAML documents. It also selects the events that a person
// requests.
//
// It works on the events' raw JSON. It compares objects in lockstep and parses only differing
// parts, because it must keep up with a stream of 10,000 events a second. No content of an object
// reaches the terminal as a control sequence: every view escapes unprintable characters.
//
// The package starts no goroutine, reads no clock, and writes only whole lines to its writer.
package console
