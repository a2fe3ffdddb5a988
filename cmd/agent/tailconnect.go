package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// connection is the bus to read.
type connection struct {
	url, stream string
	domain      string        // of JetStream; "": that of the server
	subject     string        // template of the subjects; "": the default
	options     []nats.Option // credentials and certificates
	advice      string        // what to do where the server refuses the credentials
}

// connection reads the flags that say where the bus is, and who reads it.
func (f *tailFlags) connection(stderr io.Writer) (*connection, error) {
	c := &connection{url: f.bus, stream: f.stream, domain: f.domain}
	inbox := f.inboxPrefix
	if inbox != "" && nats.CustomInboxPrefix(inbox)(new(nats.Options)) != nil {
		return nil, usageError{fmt.Errorf("--inbox-prefix %q: want a subject such as _INBOX_reader, without * and >, and without a dot at the end", inbox)}
	}
	var auth publish.NATSAuth
	var secure *publish.TLS
	if f.config != "" {
		n, err := f.configured()
		if err != nil {
			return nil, err
		}
		c.url, c.stream = cmp.Or(c.url, n.URL), cmp.Or(c.stream, n.Stream.Name)
		c.subject, c.domain, inbox = n.Subject, cmp.Or(c.domain, n.Domain), cmp.Or(inbox, n.InboxPrefix)
		auth, secure = publish.NATSAuth(n.Auth), tlsConfig(n.TLS)
	}
	if f.creds != "" {
		auth = publish.NATSAuth{CredsFile: f.creds}
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
	case auth != (publish.NATSAuth{}):
		c.advice = "The server refuses the credentials that bus.nats.auth in " + f.config + " names: put the right ones there, or name others with --creds"
	default:
		c.advice = "Say who reads: --creds FILE, or --config FILE with bus.nats.auth in it"
	}
	key := ""
	if f.config != "" && f.creds == "" {
		key = "bus.nats"
	}
	var err error
	c.options, err = publish.ConnectOptions(key, c.url, inbox, auth, secure)
	return c, err
}

// configured is the bus of the configuration file.
func (f *tailFlags) configured() (*config.NATS, error) {
	cfg, err := config.Load(f.config)
	if invalid := (config.Errors{}); errors.As(err, &invalid) {
		return nil, err
	} else if err != nil {
		return nil, usageError{err} // the file cannot be read
	}
	if cfg.Bus.NATS == nil {
		return nil, usageError{fmt.Errorf("--config %s: its bus is not NATS, and tail reads JetStream only: name the bus with --bus", f.config)}
	}
	return cfg.Bus.NATS, nil
}

func refusesCredentials(err error) bool {
	for _, refused := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
}
