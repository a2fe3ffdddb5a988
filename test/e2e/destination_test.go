package e2e_test

import (
	"fmt"
	"testing"
)

// destination is a bus: where an agent is told to write, and where what has arrived is read by a client that is not the
// agent's.
type destination interface {
	// config is the value of bus in the agent's configuration, YAML in one line.
	config() string
	// read reads what arrives, until the test ends. Nothing need be there yet.
	read(t testing.TB, r *reader) *stream
}

// config is that of an agent that makes the stream itself.
func (b *bus) config() string {
	stream := "create: true"
	if b.replicas > 1 {
		stream += fmt.Sprintf(", replicas: %d", b.replicas)
	}
	more := ""
	if b.more != "" {
		more = ", " + b.more
	}
	return fmt.Sprintf("nats: {url: %q, stream: {%s}%s}", b.URL, stream, more)
}

func (b *bus) read(t testing.TB, r *reader) *stream { return readStream(t, b, r) }
