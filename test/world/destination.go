package world

import (
	"fmt"
	"testing"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// Destination is a bus: where an agent is told to write, and where what has arrived is read by a client that is not the
// agent's.
type Destination interface {
	// Config is the value of bus in the agent's configuration, YAML in one line.
	Config() string
	// Read reads what arrives, until the test ends. Nothing need be there yet.
	Read(t testing.TB, r *oracle.Reader) *Stream
}

// Config is that of an agent that makes the stream itself.
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
