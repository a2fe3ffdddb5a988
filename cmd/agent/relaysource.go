package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish"
	publishhttp "github.com/kubecdc/kubecdc/internal/publish/http"
	"github.com/kubecdc/kubecdc/internal/publish/kafka"
	"github.com/kubecdc/kubecdc/internal/publish/nats"
	publishstdout "github.com/kubecdc/kubecdc/internal/publish/stdout"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// newRelay makes one relay of the configuration, which is run once. cluster is the name of the cluster whose records it
// relays; "": those of every one that the bus has.
func newRelay(cfg *config.Config, r *config.Relay, cluster string, stdout io.Writer, fence publish.Fence, log *slog.Logger, m *relay.Metrics) (*relay.Relay, error) {
	source, err := relaySource(cfg, r, cluster, log)
	if err != nil {
		return nil, fmt.Errorf("relay %s: %w", r.Name, err)
	}
	target, err := newRelayTarget(cfg, &r.To, cluster, stdout, fence, log.With("relay", r.Name))
	if err != nil {
		return nil, fmt.Errorf("relay %s: to: %w", r.Name, err)
	}
	return relay.New(relay.Options{
		Name: r.Name, Source: source, Target: target, Match: matchRelay(r, cluster), Refused: relay.Refused(r.Refused),
	}, log, m), nil
}

// cursorReader is a source whose cursor can be looked at.
type cursorReader interface {
	relay.Source
	Status(ctx context.Context) ([]relay.Position, error)
}

// relaySource is the bus of the configuration as what a relay reads.
func relaySource(cfg *config.Config, r *config.Relay, cluster string, log *slog.Logger) (cursorReader, error) {
	switch b := &cfg.Bus; {
	case b.NATS != nil:
		options, err := nats.ConnectOptions("bus.nats", b.NATS.URL, b.NATS.InboxPrefix, nats.Auth(b.NATS.Auth), tlsConfig(b.NATS.TLS))
		if err != nil {
			return nil, err
		}
		events := consume.AllEvents
		if len(r.Operations) > 0 || r.To.Slack != nil { // neither relays stream events
			events = consume.ObjectEvents
		}
		return relay.NewJetStream(relay.JetStreamConfig{
			Relay: r.Name, URL: b.NATS.URL, Options: options, Domain: b.NATS.Domain, Stream: b.NATS.Stream.Name, Start: relay.Start(r.Start),
			Subject: b.NATS.Subject, Objects: objectsOf(r), Events: events,
		}, log)
	case b.Kafka != nil:
		c := kafkaConfig(b.Kafka, cluster, 0)
		dialer, err := kafka.NewDialer(&c)
		if err != nil {
			return nil, fmt.Errorf("bus.kafka: %w", err)
		}
		source, err := relay.NewKafka(relay.KafkaConfig{
			Relay: r.Name, Brokers: c.Brokers, Topic: c.Topic, Cluster: cluster, Except: cfg.DeadLetter.Topic,
			Start: relay.Start(r.Start), Dialer: dialer,
		}, log)
		if err != nil {
			return nil, withClusterAdvice(fmt.Errorf("bus.kafka: %w", err), cluster)
		}
		return source, nil
	}
	return nil, errors.New("reads the bus, which has to be nats or kafka: http and stdout keep nothing that could be read")
}

// withClusterAdvice says what to do where a template needs the name of a cluster.
func withClusterAdvice(err error, cluster string) error {
	if cluster != "" {
		return err
	}
	return fmt.Errorf("%w: set cluster in the file, or --cluster (where the agent has none, it is the uid of namespace kube-system)", err)
}

// newRelayTarget is where a relay sends records. It asks fence before each attempt.
func newRelayTarget(cfg *config.Config, to *config.RelayTarget, cluster string, stdout io.Writer, fence publish.Fence, log *slog.Logger) (relay.Target, error) {
	maxBytes := int(cfg.Event.MaxBytes)
	switch {
	case to.Slack != nil:
		return relay.NewSlack(relay.SlackConfig{URLFile: to.Slack.URLFile, TokenFile: to.Slack.TokenFile, Channel: to.Slack.Channel, Fence: fence}, log)
	case to.HTTP != nil:
		c := httpConfig(to.HTTP)
		c.Fence = fence
		h, err := publishhttp.New(c, log, nil)
		if err != nil {
			return nil, err
		}
		return relay.NewBus(h), nil
	case to.NATS != nil:
		c := natsConfig(to.NATS, cluster, maxBytes)
		c.Key, c.Fence = "to.nats", fence
		n, err := nats.New(c, log, nil)
		if err != nil {
			return nil, withClusterAdvice(err, cluster)
		}
		return relay.NewBus(n), nil
	case to.Kafka != nil:
		c := kafkaConfig(to.Kafka, cluster, maxBytes)
		c.Fence = fence
		k, err := kafka.New(c, log, nil)
		if err != nil {
			return nil, withClusterAdvice(err, cluster)
		}
		return relay.NewBus(k), nil
	}
	return relay.NewWriter(publishstdout.New(stdout, fence)), nil
}

// objectsOf are the objects whose events a bus has to send for a relay, with the stream events of their resources: matchRelay is false for all
// others.
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

// matchRelay tells which events a relay is asked for. Those about the stream come with their resource's, unless operations are
// named: with some operations left out, they would say what does not hold.
func matchRelay(r *config.Relay, cluster string) func(*consume.Event) bool {
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
