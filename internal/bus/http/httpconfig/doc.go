// Package httpconfig has the settings of the bus "http" and of requests like its own, as a
// configuration reads and checks them. Package http runs with them.
//
// It is pure: no files, no connections.
package httpconfig
