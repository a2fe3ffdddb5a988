// Package driver defines the contract between a bus and its users: the configuration, the command
// line, the agent, relays and readers. A bus is a [Driver] in the list of package catalog; nothing
// else distinguishes the buses.
//
// It is pure: no state, no goroutines.
package driver
