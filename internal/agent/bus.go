package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/buses"
	"github.com/kubecdc/kubecdc/internal/bus/claim"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/trace"
)

// bus is a bus with the related parts that the agent needs.
type bus struct {
	publish.Bus
	driver *driver.Driver
	run    func(context.Context) error // runs the bus and the parts that run concurrently with it
	// logs are the streams or topics of the bus; nil if it has none that can be distinguished.
	logs *publish.Logs
	// deadLetters accepts events that the bus refuses for good; nil without one, and then such an
	// event ends the agent.
	deadLetters publish.Bus
	claims      publish.ClaimStore // stores events that are too large; nil without one
	tracer      *trace.Tracer      // nil if tracing is off
	// retiring reports whether a scope is no longer selected, so that it does not count for
	// readiness. It is set before run is called.
	retiring func(scope string) bool
}

// embeddedFull is the advice if the embedded JetStream is full.
const embeddedFull = "the disk of --data-dir is full, events wait: free space on it, or use another directory or a bus"

// newBus returns the bus of the configuration and starts nothing. embedded reports whether it is
// the embedded JetStream. The bus checks fence before each write.
func newBus(
	cfg *config.Config, cluster string, embedded bool, stdout io.Writer, fence publish.Fence, log *slog.Logger,
	m *publish.Metrics,
) (*bus, error) {
	d, settings := cfg.Bus.Chosen()
	b := &bus{driver: d}
	env := &driver.Env{
		Key:           "bus." + d.Name,
		Cluster:       cluster,
		MaxEventBytes: int(cfg.Event.MaxBytes),
		DeadLetter:    cfg.DeadLetter.Of(d),
		Retiring:      func(scope string) bool { return b.retiring != nil && b.retiring(scope) },
		Fence:         fence,
		Stdout:        stdout,
		Log:           log,
		Metrics:       m,
	}
	if embedded {
		env.FullAdvice = embeddedFull
	}
	var err error
	b.Bus, err = buses.Of(settings).Open(env)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", env.Key, err)
	}
	b.run = b.Run
	if env.DeadLetter != "" {
		b.deadLetters = b.Bus
	}
	if l, ok := b.Bus.(driver.Logger); ok {
		b.logs = l.Logs()
	}
	b.claims, err = b.openClaims(&cfg.ClaimCheck, fence, log, m)
	if err != nil {
		return nil, fmt.Errorf("claimCheck: %w", err)
	}
	return b, nil
}

// throttled returns what the bus waits for because of a quota, and for how long; "": nothing.
func (b *bus) throttled(now time.Time) string {
	t, ok := b.Bus.(driver.Throttler)
	if !ok {
		return ""
	}
	by, until := t.Throttled()
	if !until.After(now) {
		return ""
	}
	return fmt.Sprintf("%s, for another %s", by, terminal.Duration(until.Sub(now)))
}

// check returns the error with which run would end at once.
func (b *bus) check() error {
	if c, ok := b.Bus.(driver.Checker); ok {
		return c.Check()
	}
	return nil
}

// openClaims opens the store for events that are too large; it returns nil without one.
func (b *bus) openClaims(
	c *config.ClaimCheck, fence publish.Fence, log *slog.Logger, m *publish.Metrics,
) (publish.ClaimStore, error) {
	switch {
	case c.ObjectStore != nil:
		s, ok := b.Bus.(driver.ObjectStorer)
		if !ok {
			return nil, errors.New("objectStore: the bus has none") // impossible: the configuration was validated
		}
		return s.ObjectStore(*c.ObjectStore, log, m), nil
	case c.Directory != nil:
		return claim.NewDirectory(c.Directory.Path, fence, log, m)
	case c.HTTP != nil:
		client := *c.HTTP
		client.Fence = fence
		return publishhttp.NewClaimStore(client, log, m)
	}
	return nil, nil
}

// options returns the handling of events that the bus does not accept.
func (b *bus) options(cfg *config.Config) publish.Options {
	o := publish.Options{
		Copies:        max(b.driver.Copies, 1),
		MaxEventBytes: int(cfg.Event.MaxBytes),
		Claims:        b.claims,
		DeadLetters:   b.deadLetters,
	}
	if b.driver.Stdout {
		o.MaxEventBytes = 0 // standard output has no limit, and needless shortening would lose data
	}
	if b.tracer != nil {
		o.Tracer = b.tracer
	}
	for _, part := range cfg.Oversize {
		o.Oversize = append(o.Oversize, string(part))
	}
	return o
}

// busName returns the name of the bus for the log, without secrets.
func busName(o *Options, b config.Bus) string {
	if o.IsEmbedded() {
		return "embedded JetStream"
	}
	_, settings := b.Chosen()
	return settings.Summary().Log
}
