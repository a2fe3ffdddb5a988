// Package console renders events for people: as lines like those of kubectl get -w, as differences in context, as JSON
// lines or as YAML documents; and tells which events they asked for.
//
// It works on the events' raw JSON. Objects are compared in lockstep, and only what differs is looked into, for a stream of
// 10,000 events a second has to be readable as it comes. Nothing that an object contains reaches the terminal as a control
// sequence: what is not printable is shown escaped, whatever the view.
//
// The package starts no goroutine, reads no clock, and writes nothing but whole lines to the writer that it is given.
package console
