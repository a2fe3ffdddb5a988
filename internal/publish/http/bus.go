package http

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// Bus implements publish.Bus. See the package documentation.
type Bus struct {
	cfg         Config
	events      *endpoint
	deadLetters *endpoint // nil without dead letters
	log         *slog.Logger
	metrics     *publish.Metrics
}

// New returns a bus for valid settings. It reads the files they name; Run opens the connections.
func New(cfg Config, log *slog.Logger, m *publish.Metrics) (*Bus, error) {
	m = cmp.Or(m, publish.NewMetrics(nil))
	b := &Bus{cfg: cfg, log: log, metrics: m}
	var err error
	if b.events, err = newEndpoint(cfg, log, m); err != nil || cfg.DeadLetterURL == "" {
		return b, err
	}
	other, err := cfg.forDeadLetters(b.events.origin)
	if err == nil {
		b.deadLetters, err = newEndpoint(other, log, m)
	}
	if err != nil {
		return nil, fmt.Errorf("dead letter %w", err)
	}
	return b, nil
}

// Publish implements publish.Bus.
func (b *Bus) Publish(e *publish.Event) {
	switch {
	case !e.DeadLetter:
		b.events.publish(e)
	case b.deadLetters != nil:
		b.deadLetters.publish(e)
	default:
		e.Done(fmt.Errorf("publish %s: %w: no URL for dead letters is configured", e.ID, publish.ErrRefused))
	}
}

// Ready returns an error while each of the last five requests has failed for a temporary reason, and after Run.
//
// Before the first event it returns nil: no free request would prove that a receiver accepts events, and the first event may come hours
// later. A refused event counts as success, because the receiver responded.
func (b *Bus) Ready() error { return b.events.ready() }

// Run implements publish.Bus. It returns nil.
func (b *Bus) Run(ctx context.Context) error {
	if b.events.url.Scheme == "http" && (b.cfg.HeadersFile != "" || b.cfg.TokenFile != "") {
		b.log.Warn("credentials are sent unencrypted", "receiver", b.events.origin, "advice", "use https in bus.http.url")
	}
	b.events.open(b.metrics.Connected)
	if b.deadLetters != nil {
		b.deadLetters.open(nil)
	}
	<-ctx.Done()
	b.events.close()
	if b.deadLetters != nil {
		b.deadLetters.close()
	}
	b.metrics.Connected.Set(0)
	return nil
}
