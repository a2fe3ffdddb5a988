package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
	kafkabus "github.com/kubecdc/kubecdc/internal/publish/kafka"
	natsbus "github.com/kubecdc/kubecdc/internal/publish/nats"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// connection is the bus to read.
type connection struct {
	url, stream string
	domain      string         // of JetStream; "": that of the server
	subject     string         // template of the subjects; "": the default
	options     []nats.Option  // credentials and certificates
	advice      string         // what to do where the server refuses the credentials
	kafka       *consume.Kafka // nil: it is no Kafka
}

// connection reads the flags that say where the bus is, and who reads it.
func (f *tailFlags) connection(stderr io.Writer) (*connection, error) {
	c := &connection{url: f.bus, stream: f.stream, domain: f.domain}
	inbox := f.inboxPrefix
	if inbox != "" && nats.CustomInboxPrefix(inbox)(new(nats.Options)) != nil {
		return nil, usageError{fmt.Errorf("--inbox-prefix %q: want a subject such as _INBOX_reader, without * and >, and without a dot at the end", inbox)}
	}
	cfg, err := f.configured()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(f.bus, "kafka:") || f.bus == "" && cfg.Bus.Kafka != nil {
		c.kafka, err = f.kafka(cfg)
		return c, err
	}
	var auth natsbus.Auth
	var secure *publish.TLS
	if n := cfg.Bus.NATS; f.config != "" && n != nil {
		c.url, c.stream = cmp.Or(c.url, n.URL), cmp.Or(c.stream, n.Stream.Name)
		c.subject, c.domain, inbox = n.Subject, cmp.Or(c.domain, n.Domain), cmp.Or(inbox, n.InboxPrefix)
		auth, secure = natsbus.Auth(n.Auth), tlsConfig(n.TLS)
	} else if f.config != "" {
		return nil, usageError{fmt.Errorf("--config %s: its bus keeps nothing that could be read: name a NATS or a Kafka with --bus", f.config)}
	}
	if f.creds != "" {
		auth = natsbus.Auth{CredsFile: f.creds}
	}
	if f.tlsCA != "" {
		if secure == nil {
			secure = &publish.TLS{}
		}
		secure.CAFile = f.tlsCA
	}
	if c.url == "" {
		c.url = defaultBus()
		noteOthers(stderr)
	}
	switch {
	case f.creds != "":
		c.advice = "The server refuses the credentials in " + f.creds + " (--creds): name others, or a user who may read the stream"
	case auth != (natsbus.Auth{}):
		c.advice = "The server refuses the credentials that bus.nats.auth in " + f.config + " names: put the right ones there, or name others with --creds"
	default:
		c.advice = "Say who reads: --creds FILE, or --config FILE with bus.nats.auth in it"
	}
	key := ""
	if f.config != "" && f.creds == "" {
		key = "bus.nats"
	}
	c.options, err = natsbus.ConnectOptions(key, c.url, inbox, auth, secure)
	return c, err
}

// configured is the configuration file; without --config, the default.
func (f *tailFlags) configured() (*config.Config, error) {
	if f.config == "" {
		return config.Default(), nil
	}
	cfg, err := config.Load(f.config)
	if invalid := (yamldoc.Errors{}); err != nil && !errors.As(err, &invalid) {
		err = usageError{err} // the file cannot be read
	}
	return cfg, err
}

// kafka is the Kafka that --bus names, or the file.
func (f *tailFlags) kafka(cfg *config.Config) (*consume.Kafka, error) {
	for flag, value := range map[string]string{"--stream": f.stream, "--creds": f.creds, "--domain": f.domain, "--inbox-prefix": f.inboxPrefix} {
		if value != "" {
			return nil, usageError{fmt.Errorf("%s is for NATS: name the topic as in kafka://host:port/topic, and credentials in the file (--config)", flag)}
		}
	}
	bus := cfg.Bus
	if f.bus != "" {
		var err error
		if bus, err = flagBus(f.bus, &cfg.Bus); err != nil {
			return nil, err
		}
	}
	for _, broker := range bus.Kafka.Brokers {
		if _, _, err := net.SplitHostPort(broker); err != nil {
			return nil, usageError{errors.New("--bus: want kafka://host:port/topic, several brokers of one cluster separated by commas")}
		}
	}
	k := kafkaConfig(bus.Kafka, cfg.Cluster, 0)
	if f.tlsCA != "" {
		if k.TLS == nil {
			k.TLS = &publish.TLS{}
		}
		k.TLS.CAFile = f.tlsCA
	}
	dialer, err := kafkabus.NewDialer(&k)
	if err != nil {
		return nil, fmt.Errorf("bus.kafka: %w", err)
	}
	match, err := topicsOf(k.Topic, cfg.Cluster)
	if err != nil {
		return nil, fmt.Errorf("bus.kafka.topic: %w", err)
	}
	dead, err := topicsOf(cmp.Or(cfg.DeadLetter.Topic, config.DefaultDeadTopic), cfg.Cluster)
	if err != nil {
		return nil, fmt.Errorf("deadLetter.topic: %w", err)
	}
	if topic := k.Topic; !strings.Contains(topic, "{") {
		match, dead = func(name string) bool { return name == topic }, func(string) bool { return false }
	}
	return &consume.Kafka{
		Brokers: k.Brokers, Dialer: dialer, Cluster: cfg.Cluster, Match: func(topic string) bool { return match(topic) && !dead(topic) },
	}, nil
}

// topicsOf reports which topics a template may have made. The name of the cluster may be unknown: then it stands for any.
func topicsOf(template, cluster string) (func(topic string) bool, error) {
	if cluster != "" || !strings.Contains(template, "{cluster}") {
		topics, err := kafkabus.NewTopics(template, cmp.Or(cluster, "-"))
		if err != nil {
			return nil, err
		}
		return func(topic string) bool { return topics.Match(topic, nil) }, nil
	}
	var pattern strings.Builder
	for rest := template; rest != ""; {
		literal, after, _ := strings.Cut(rest, "{")
		pattern.WriteString(regexp.QuoteMeta(literal))
		if len(literal) < len(rest) {
			pattern.WriteString("[a-zA-Z0-9._-]+")
		}
		_, rest, _ = strings.Cut(after, "}")
	}
	matching, err := regexp.Compile("^" + pattern.String() + "$")
	if err != nil {
		return nil, err
	}
	return matching.MatchString, nil
}

func refusesCredentials(err error) bool {
	for _, refused := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
}
