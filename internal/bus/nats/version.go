package nats

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// checkVersion returns an error if the connected server is too old. At the start it is permanent.
// Later, another server of the cluster may be newer, and events wait.
func (b *Bus) checkVersion(server string) error {
	err := natsversion.Check(server)
	if err != nil && !b.accepted {
		return fmt.Errorf("%w: %w", publish.ErrStream, err)
	}
	return err
}

// warnOfVersion logs that the server may lose records of this stream that it has acknowledged.
func (b *Bus) warnOfVersion(server string, c *jetstream.StreamConfig) {
	bounded := c.Replicas > 1 && (c.MaxBytes > 0 || c.MaxMsgs > 0)
	b.loses.Store(bounded && natsversion.LosesWhenFull(server))
	if !b.loses.Load() {
		return
	}
	if suppressed, ok := b.window.First("version"); ok {
		b.log.Warn("this version of the server may lose acknowledged records if the stream is full", "server_version",
			server, "stream", c.Name,
			"replicas", c.Replicas, "max_bytes", c.MaxBytes, "max_msgs", c.MaxMsgs, "suppressed", suppressed,
			"advice",
			"upgrade the servers to 2.14 or later, or remove the stream's max_bytes and max_msgs while it has room; see docs/reference/compatibility.md")
	}
}

// fullAdvice returns the fix for a full stream.
func (b *Bus) fullAdvice() string {
	const page = "; see docs/guides/nats.md, When the stream is full"
	switch {
	case b.cfg.FullAdvice != "":
		return b.cfg.FullAdvice
	case b.loses.Load():
		return "the stream is full, events wait: use another stream, because this version of the server may lose records of a full one that is edited" +
			page
	}
	return "the stream is full, events wait: shorten its max_age (nats stream edit " + b.cfg.Stream.Name +
		" --max-age=…) or use another stream" + page
}
