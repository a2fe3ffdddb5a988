// Package natsconfig has the settings of the bus "nats", as a configuration reads and checks them.
// Package nats runs with them.
//
// It is pure: no files, no connections.
package natsconfig
