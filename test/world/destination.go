package world

import (
	"fmt"
	"testing"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// Destination is a bus. An agent writes to it, and the test reads it with a client that is not the
// agent's.
type Destination interface {
	// Config returns the value of bus in the agent's configuration, as YAML in one line.
	Config() string
	// Read reads records as they arrive, until the test ends. The bus may be empty.
	Read(t testing.TB, r *oracle.Reader) *Stream
}

// Config returns the configuration of an agent that creates the stream.
func (b *Bus) Config() string {
	stream := "create: true"
	if b.replicas > 1 {
		stream += fmt.Sprintf(", replicas: %d", b.replicas)
	}
	more := ""
	if b.More != "" {
		more = ", " + b.More
	}
	return fmt.Sprintf("nats: {url: %q, stream: {%s}%s}", b.URL, stream, more)
}

// Read reads the stream.
func (b *Bus) Read(t testing.TB, r *oracle.Reader) *Stream { return ReadStream(t, b, r) }
