// Package kafkaconfig has the settings of the bus "kafka", as a configuration reads and checks
// them, and the names of topics that they make. Package kafka runs with them.
//
// It is pure: no files, no connections.
package kafkaconfig
