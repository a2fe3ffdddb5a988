// Package searchtime says for how long a NATS server may search a stream before it answers. A
// server that has just started has neither the index of subjects nor the files of the stream in
// memory. It then reads all files for the first consumers, at the speed of its disk.
//
// The package is pure.
package searchtime

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// bytes and messages are what the slowest server that is waited for reads in a second. A
	// network disk that is at its limit has some 20 MB/s.
	bytes    = 16 << 20
	messages = 20_000

	// Most is the longest time.
	Most = 2 * time.Minute
)

// For returns the time to add to the limit of a request that makes a server search a stream. It
// is 0 for an empty stream, grows with the stream's size, and is at most Most.
func For(s *jetstream.StreamState) time.Duration {
	seconds := float64(s.Bytes)/bytes + float64(s.Msgs)/messages
	if seconds >= Most.Seconds() {
		return Most
	}
	return time.Duration(seconds * float64(time.Second))
}
