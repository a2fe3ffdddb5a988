// Package sink is the bus of the benchmark: a JetStream with file storage, as a process of its own.
package sink
