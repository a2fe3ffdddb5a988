// Package driver is the contract between a bus and everything that needs one: the configuration, the command line, the agent, relays and
// readers. A bus is a [Driver] in the list of package drivers; nothing else distinguishes the buses.
//
// It is pure: no state, no goroutines.
package driver
