// Package relaysource has what the buses share as sources of relays: it makes records, with their
// positions, of the events that a reader returns.
package relaysource
