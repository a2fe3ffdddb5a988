package agent

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// NewRelay returns one relay of the configuration, for a single run. cluster is the name of the cluster whose records it relays, "" for the
// records of every cluster on the bus.
func NewRelay(cfg *config.Config, r *config.Relay, cluster string, stdout io.Writer, fence publish.Fence, log *slog.Logger, m *relay.Metrics) (*relay.Relay, error) {
	source, err := RelaySource(cfg, r, cluster, log)
	if err != nil {
		return nil, fmt.Errorf("relay %s: %w", r.Name, err)
	}
	target, err := NewRelayTarget(cfg, r.To, cluster, stdout, fence, log.With("relay", r.Name))
	if err != nil {
		return nil, fmt.Errorf("relay %s: to: %w", r.Name, err)
	}
	return relay.New(relay.Options{
		Name: r.Name, Source: source, Target: target, Match: MatchRelay(r, cluster), Refused: relay.Refused(r.Refused),
	}, log, m), nil
}

// RelaySource returns the bus of the configuration as the source of a relay.
func RelaySource(cfg *config.Config, r *config.Relay, cluster string, log *slog.Logger) (driver.RelaySource, error) {
	d, settings := cfg.Bus.Chosen()
	bus, ok := settings.(driver.Readable)
	if !ok {
		return nil, config.ErrNotReadable()
	}
	events := consume.AllEvents
	if to, _ := r.To.Chosen(); len(r.Operations) > 0 || to != nil && to.ObjectsOnly { // neither relays stream events
		events = consume.ObjectEvents
	}
	return bus.Relay(&driver.Relaying{
		Name: r.Name, Cluster: cluster, DeadLetter: cfg.DeadLetter.Of(d), Start: driver.Start(r.Start), Objects: objectsOf(r), Events: events, Log: log,
	})
}

// NewRelayTarget returns the target of a relay. It checks fence before each attempt.
func NewRelayTarget(cfg *config.Config, to config.RelayTarget, cluster string, stdout io.Writer, fence publish.Fence, log *slog.Logger) (relay.Target, error) {
	d, settings := to.Chosen()
	target, err := settings.Open(&driver.Env{
		Key: "to." + d.Name, Cluster: cluster, MaxEventBytes: int(cfg.Event.MaxBytes), Fence: fence, Stdout: stdout, Log: log,
	})
	if _, named := settings.(driver.Named); named {
		err = driver.WithClusterAdvice(err, cluster)
	}
	return target, err
}

// objectsOf returns the objects whose events the bus has to send to a relay, with the stream events of their resources. MatchRelay is false
// for all others.
func objectsOf(r *config.Relay) []consume.Objects {
	resources := []consume.Objects{{}}
	if len(r.Resources) > 0 {
		resources = nil
	}
	for _, p := range r.Resources {
		o := consume.Objects{Groups: p.Groups()}
		if p.Resource != "*" {
			o.Resource = p.Resource
		}
		resources = append(resources, o)
	}
	namespaces, ok := r.Namespaces.Literal()
	if !ok {
		return resources
	}
	var out []consume.Objects
	for _, o := range resources {
		for _, o.Namespace = range namespaces {
			out = append(out, o)
		}
	}
	return out
}

// MatchRelay returns a function that reports whether a relay selects an event. Stream events match with their resource, except if
// operations are configured: without some operations, their statements would be wrong.
func MatchRelay(r *config.Relay, cluster string) func(*consume.Event) bool {
	return func(e *consume.Event) bool {
		if cluster != "" && e.Cluster != "" && e.Cluster != cluster {
			return false
		}
		group := e.Group()
		version := strings.TrimPrefix(strings.TrimPrefix(e.APIVersion, group), "/")
		if !r.Takes(group, version, e.Resource) {
			return false
		}
		if e.Data == nil {
			return len(r.Operations) == 0
		}
		if !r.Namespaces.Match(e.Namespace) {
			return false
		}
		return len(r.Operations) == 0 || slices.Contains(r.Operations, config.Operation(strings.TrimPrefix(e.Type, consume.TypePrefix+"object.")))
	}
}
