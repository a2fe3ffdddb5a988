package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/claim"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/publish/drivers"
	publishhttp "github.com/kubecdc/kubecdc/internal/publish/http"
)

// bus is a bus and what else the agent needs of it.
type bus struct {
	publish.Bus
	driver *driver.Driver
	run    func(context.Context) error // the Run of the bus, and of what runs beside it
	// logs are the streams or topics of the bus; nil: it has none that can be told apart.
	logs *publish.Logs
	// deadLetters takes what the bus refuses for good; nil: nothing does, and such an event ends the agent.
	deadLetters publish.Bus
	claims      publish.ClaimStore // keeps events that are too large; nil: there is none
	// retiring reports whether a scope is no longer selected: it does not count for ready. It is set before run is called.
	retiring func(scope string) bool
}

// embeddedFull is what to do when the embedded JetStream is full.
const embeddedFull = "there is no room for records on the disk of --data-dir, events wait: make room there, or run with another directory or a bus"

// newBus makes the bus of the configuration, and starts nothing. embedded tells that it is the agent's own. All that is written to it passes fence first.
func newBus(cfg *config.Config, cluster string, embedded bool, stdout io.Writer, fence publish.Fence, log *slog.Logger, m *publish.Metrics) (*bus, error) {
	d, settings := cfg.Bus.Chosen()
	b := &bus{driver: d}
	env := &driver.Env{
		Key: "bus." + d.Name, Cluster: cluster, MaxEventBytes: int(cfg.Event.MaxBytes), DeadLetter: cfg.DeadLetter.Of(d),
		Retiring: func(scope string) bool { return b.retiring != nil && b.retiring(scope) },
		Fence:    fence, Stdout: stdout, Log: log, Metrics: m,
	}
	if embedded {
		env.FullAdvice = embeddedFull
	}
	var err error
	if b.Bus, err = settings.Open(env); err != nil {
		return nil, fmt.Errorf("%s: %w", env.Key, err)
	}
	b.run = b.Run
	if env.DeadLetter != "" {
		b.deadLetters = b.Bus
	}
	if l, ok := b.Bus.(driver.Logger); ok {
		b.logs = l.Logs()
	}
	if b.claims, err = b.openClaims(&cfg.ClaimCheck, fence, log, m); err != nil {
		return nil, fmt.Errorf("claimCheck: %w", err)
	}
	return b, nil
}

// check returns what run would end with at once.
func (b *bus) check() error {
	if c, ok := b.Bus.(driver.Checker); ok {
		return c.Check()
	}
	return nil
}

// openClaims opens the place for events that are too large; nil: there is none.
func (b *bus) openClaims(c *config.ClaimCheck, fence publish.Fence, log *slog.Logger, m *publish.Metrics) (publish.ClaimStore, error) {
	switch {
	case c.ObjectStore != nil:
		s, ok := b.Bus.(driver.ObjectStorer)
		if !ok {
			return nil, errors.New("objectStore: the bus has none") // the configuration has been validated
		}
		return s.ObjectStore(driver.ObjectStore{Bucket: c.ObjectStore.Bucket, Create: c.ObjectStore.Create, MaxBytes: int64(c.ObjectStore.MaxBytes)}, log, m)
	case c.Directory != nil:
		return claim.NewDirectory(c.Directory.Path, fence, log, m)
	case c.HTTP != nil:
		client := *c.HTTP
		client.Fence = fence
		return publishhttp.NewClaimStore(client, log, m)
	}
	return nil, nil
}

// options say what becomes of events that the bus does not take.
func (b *bus) options(cfg *config.Config) publish.Options {
	o := publish.Options{Copies: max(b.driver.Copies, 1), MaxEventBytes: int(cfg.Event.MaxBytes), Claims: b.claims, DeadLetters: b.deadLetters}
	if b.driver.Stdout {
		o.MaxEventBytes = 0 // it takes what there is; an event that is shortened for nothing would be a loss
	}
	for _, part := range cfg.Oversize {
		o.Oversize = append(o.Oversize, string(part))
	}
	return o
}

// flagBus is the bus that --bus names, with all else that the configuration has about a bus of its kind.
func flagBus(url string, configured config.Bus) (config.Bus, error) {
	b, ok := config.BusOf(url, configured)
	if !ok { // It is not repeated: it may hold a password.
		return nil, usageError{fmt.Errorf("--bus: must be %s (several servers of one cluster separated by commas)", drivers.URLs(drivers.Buses()))}
	}
	return b, nil
}

// busName is a bus for the log, without secrets.
func busName(f *runFlags, b config.Bus) string {
	if f.embedded() {
		return "embedded JetStream"
	}
	_, settings := b.Chosen()
	return settings.Summary().Log
}
