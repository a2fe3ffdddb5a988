package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/claim"
	publishhttp "github.com/kubecdc/kubecdc/internal/publish/http"
	"github.com/kubecdc/kubecdc/internal/publish/kafka"
	"github.com/kubecdc/kubecdc/internal/publish/nats"
	publishstdout "github.com/kubecdc/kubecdc/internal/publish/stdout"
)

// bus is a bus and what else the agent needs of it.
type bus struct {
	publish.Bus
	check func() error                // what run would end with at once
	run   func(context.Context) error // the Run of the bus, and of what runs beside it
	// lastEvent returns the last stream event of a resource that the bus has; nil: it cannot be asked.
	lastEvent func(context.Context, *object.Resource) (nats.StreamEvent, bool, error)
	// logs are the streams or topics of the bus; nil: it has none that can be told apart.
	logs *publish.Logs
	// deadLetters takes what the bus refuses for good; nil: nothing does, and such an event ends the agent.
	deadLetters publish.Bus
	claims      publish.ClaimStore // keeps events that are too large; nil: there is none
	fence       publish.Fence      // nil: everything passes
	// retiring reports whether a scope is no longer selected: it does not count for ready. It is set before run is called.
	retiring func(scope string) bool
}

// embeddedFull is what to do when the embedded JetStream is full.
const embeddedFull = "there is no room for records on the disk of --data-dir, events wait: make room there, or run with another directory or a bus"

// newBus makes the bus of the configuration, and starts nothing. embedded tells that it is the agent's own. All that is written to it passes fence first.
func newBus(cfg *config.Config, cluster string, embedded bool, stdout io.Writer, fence publish.Fence, log *slog.Logger, m *publish.Metrics) (*bus, error) {
	b := &bus{check: func() error { return nil }, fence: fence}
	var jetStream *nats.Bus
	var err error
	switch c := &cfg.Bus; {
	case c.NATS != nil:
		jetStream, err = b.openNATS(cfg, cluster, embedded, log, m)
	case c.Kafka != nil:
		err = b.openKafka(cfg, cluster, log, m)
	case c.HTTP != nil:
		err = b.openHTTP(cfg, log, m)
	default:
		b.Bus = publishstdout.New(stdout, fence)
	}
	if err != nil {
		return nil, err
	}
	b.run = b.Run
	b.claims, err = newClaims(&cfg.ClaimCheck, jetStream, fence, log, m)
	return b, err
}

func (b *bus) openNATS(cfg *config.Config, cluster string, embedded bool, log *slog.Logger, m *publish.Metrics) (*nats.Bus, error) {
	c := natsConfig(cfg.Bus.NATS, cluster, int(cfg.Event.MaxBytes))
	c.DeadLetter, c.Fence = cfg.DeadLetter.Subject, b.fence
	c.DeadLetterOptional = c.DeadLetter == config.DefaultDeadSubject
	if embedded {
		c.FullAdvice = embeddedFull
	}
	n, err := nats.New(c, log, m)
	if err != nil {
		return nil, fmt.Errorf("bus.nats: %w", err)
	}
	b.Bus, b.check, b.lastEvent, b.logs = n, n.Check, n.LastStreamEvent, n.Logs()
	if c.DeadLetter != "" {
		b.deadLetters = n
	}
	return n, nil
}

// natsConfig is what package publish wants to know of a NATS bus, also of one that a relay sends to.
func natsConfig(n *config.NATS, cluster string, maxEventBytes int) nats.Config {
	return nats.Config{
		URL: n.URL, Cluster: cluster, Subject: n.Subject, MaxEventBytes: maxEventBytes,
		Stream: nats.Stream{
			Name: n.Stream.Name, Create: n.Stream.Create, Replicas: n.Stream.Replicas, MaxAge: n.Stream.MaxAge.Duration,
			MaxBytes: int64(n.Stream.MaxBytes), DiscardOld: n.Stream.Discard == config.DiscardOld,
			DuplicateWindow: n.Stream.DuplicateWindow.Duration,
		},
		Auth: nats.Auth(n.Auth), TLS: tlsConfig(n.TLS), InboxPrefix: n.InboxPrefix, Domain: n.Domain,
	}
}

func (b *bus) openHTTP(cfg *config.Config, log *slog.Logger, m *publish.Metrics) error {
	c := httpConfig(cfg.Bus.HTTP)
	c.DeadLetterURL, c.Fence = cfg.DeadLetter.URL, b.fence
	h, err := publishhttp.New(c, log, m)
	if err != nil {
		return fmt.Errorf("bus.http: %w", err)
	}
	b.Bus = h
	if c.DeadLetterURL != "" {
		b.deadLetters = h
	}
	return nil
}

// httpConfig returns the configuration of an HTTP receiver, also of one that a relay sends to.
func httpConfig(h *config.HTTP) publishhttp.Config {
	return publishhttp.Config{
		URL: h.URL, Batch: h.Batch, Timeout: h.Timeout.Duration, HeadersFile: h.HeadersFile, TokenFile: h.TokenFile, Insecure: h.Insecure, TLS: tlsConfig(h.TLS),
	}
}

// tlsConfig is nil where c is.
func tlsConfig(c *config.TLS) *publish.TLS {
	if c == nil {
		return nil
	}
	t := publish.TLS(*c)
	return &t
}

// newClaims opens the place for events that are too large; nil: there is none. jetStream is the bus, where it is one.
func newClaims(c *config.ClaimCheck, jetStream *nats.Bus, fence publish.Fence, log *slog.Logger, m *publish.Metrics) (publish.ClaimStore, error) {
	var store publish.ClaimStore
	var err error
	switch {
	case c.ObjectStore != nil:
		store, err = nats.NewObjectStore(jetStream, nats.ObjectStoreConfig{
			Bucket: c.ObjectStore.Bucket, Create: c.ObjectStore.Create, MaxBytes: int64(c.ObjectStore.MaxBytes),
		}, log, m)
	case c.Directory != nil:
		store, err = claim.NewDirectory(c.Directory.Path, fence, log, m)
	case c.HTTP != nil:
		store, err = publishhttp.NewClaimStore(publishhttp.ClientConfig{
			URL: c.HTTP.URL, Timeout: c.HTTP.Timeout.Duration, HeadersFile: c.HTTP.HeadersFile, TokenFile: c.HTTP.TokenFile,
			Insecure: c.HTTP.Insecure, TLS: tlsConfig(c.HTTP.TLS), Fence: fence,
		}, log, m)
	}
	if err != nil {
		return nil, fmt.Errorf("claimCheck: %w", err)
	}
	return store, nil
}

// copies is how many times the publisher holds an event until the bus has acknowledged it, the encoded event included.
func copies(cfg *config.Config) int {
	if cfg.Bus.Kafka != nil {
		return kafka.Copies
	}
	return 1
}

// options say what becomes of events that the bus does not take.
func (b *bus) options(cfg *config.Config) publish.Options {
	o := publish.Options{Copies: copies(cfg), MaxEventBytes: int(cfg.Event.MaxBytes), Claims: b.claims, DeadLetters: b.deadLetters}
	if cfg.Bus.Stdout != nil {
		o.MaxEventBytes = 0 // it takes what there is; an event that is shortened for nothing would be a loss
	}
	for _, part := range cfg.Oversize {
		o.Oversize = append(o.Oversize, string(part))
	}
	return o
}

// flagBus is the bus that --bus names, with all else that the configuration has about a bus of its kind.
func flagBus(text string, configured *config.Bus) (config.Bus, error) {
	scheme, rest, _ := strings.Cut(text, ":") // several servers of one cluster, separated by commas, are no URL
	switch scheme {
	case "nats", "tls":
		n := configured.NATS
		if n == nil {
			n = config.Default().Bus.NATS
		}
		n.URL = text
		return config.Bus{NATS: n}, nil
	case "kafka":
		k := configured.Kafka
		if k == nil {
			k = config.DefaultKafka()
		}
		servers, topic, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
		k.Brokers = strings.Split(servers, ",")
		if topic != "" {
			k.Topic = topic
		}
		return config.Bus{Kafka: k}, nil
	case "http", "https":
		h := configured.HTTP
		if h == nil {
			h = config.DefaultHTTP()
		}
		h.URL = text
		return config.Bus{HTTP: h}, nil
	case "stdout":
		return config.Bus{Stdout: &config.Stdout{}}, nil
	}
	// It is not repeated: it may hold a password.
	return config.Bus{}, usageError{fmt.Errorf("--bus: must be nats://host:port, kafka://host:port/topic (several servers of one cluster separated by commas), " +
		"http://host/path, https://host/path or stdout:")}
}

// busServers are the servers of a bus, each as it is written, in order; none has a secret in it.
func busServers(b *config.Bus) []string {
	var servers []string
	switch {
	case b.NATS != nil:
		servers = strings.Split(b.NATS.URL, ",")
	case b.Kafka != nil:
		servers = slices.Clone(b.Kafka.Brokers)
	case b.HTTP != nil:
		servers = []string{receiver(b.HTTP.URL)}
	}
	for i, s := range servers {
		servers[i] = strings.TrimSuffix(strings.TrimSpace(s), "/")
	}
	slices.Sort(servers)
	return servers
}

// receiver is the URL of an HTTP receiver without what may be a secret in it, and so can be logged. Of its path there is a
// hash, which tells one from another.
func receiver(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "" // it has been validated
	}
	origin := u.Scheme + "://" + u.Host
	if u.Path == "" || u.Path == "/" {
		return origin
	}
	sum := sha256.Sum256([]byte(u.EscapedPath()))
	return fmt.Sprintf("%s/… (%x)", origin, sum[:4])
}

// withoutQuery is a URL for its owner's eyes.
func withoutQuery(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "" // it has been validated
	}
	u.RawQuery, u.Fragment = "", ""
	return withoutUser(u)
}

// busName is a bus for the log, without secrets.
func busName(f *runFlags, b *config.Bus) string {
	servers := strings.Join(busServers(b), ",")
	switch {
	case f.embedded():
		return "embedded JetStream"
	case b.NATS != nil:
		return "NATS " + servers + ", stream " + b.NATS.Stream.Name
	case b.Kafka != nil:
		return "Kafka " + servers + ", topic " + b.Kafka.Topic
	case b.HTTP != nil:
		return "HTTP " + servers
	}
	return "standard output"
}
