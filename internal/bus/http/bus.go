package http

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/http/httpconfig"
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
	b.events, err = newEndpoint(cfg, log, m)
	if err != nil || cfg.DeadLetterURL == "" {
		return b, err
	}
	other, err := forDeadLetters(&cfg, b.events.origin)
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

// Ready returns an error while each of the last five requests has failed for a temporary reason,
// and after Run.
//
// Before the first event it returns nil: no free request would prove that a receiver accepts
// events, and the first event may come hours later. A refused event counts as success, because the
// receiver responded.
func (b *Bus) Ready() error { return b.events.ready() }

// Run implements publish.Bus. It returns nil.
func (b *Bus) Run(ctx context.Context) error {
	if b.events.url.Scheme == "http" && (b.cfg.HeadersFile != "" || b.cfg.TokenFile != "") {
		b.log.Warn("credentials are sent unencrypted", "receiver", b.events.origin, "advice",
			"use https in bus.http.url")
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

const (
	maxSingles = 256 // concurrent requests with one event
	maxBatches = 4   // concurrent requests with batches: events that arrive meanwhile fill the next ones
)

// Config configures the destination of a Bus.
type Config = httpconfig.Config

// Opener makes a Bus of its settings.
type Opener struct{ *Config }

// Open implements driver.Opener.
func (o Opener) Open(e *driver.Env) (publish.Bus, error) {
	cfg := *o.Config
	cfg.DeadLetterURL, cfg.Fence = e.DeadLetter, e.Fence
	return New(cfg, e.Log, e.Metrics)
}

// forDeadLetters returns the configuration of the receiver of dead letters. origin belongs to
// cfg.URL.
func forDeadLetters(cfg *Config, origin string) (Config, error) {
	u, err := url.Parse(cfg.DeadLetterURL)
	if err != nil {
		return Config{}, fmt.Errorf("url: %w", publish.WithoutURL(err))
	}
	other := Config{URL: cfg.DeadLetterURL, Timeout: cfg.Timeout, Fence: cfg.Fence}
	switch {
	case originOf(u) == origin:
		other.HeadersFile = cfg.HeadersFile
		other.TokenFile = cfg.TokenFile
		other.Insecure = cfg.Insecure
		other.TLS = cfg.TLS
	case u.Scheme == "https" && cfg.TLS != nil:
		other.TLS = &publish.TLS{CAFile: cfg.TLS.CAFile}
	}
	return other, nil
}
