package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/subjectfilter"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// SetAccess implements driver.Readable.
func (c *Config) SetAccess(a *driver.Access) error {
	if a.InboxPrefix != "" {
		if nats.CustomInboxPrefix(a.InboxPrefix)(new(nats.Options)) != nil {
			return fmt.Errorf("--inbox-prefix %q: want a subject such as _INBOX_reader, without * and >, and without a dot at the end", a.InboxPrefix)
		}
		c.InboxPrefix = a.InboxPrefix
	}
	if a.Stream != "" {
		c.Stream.Name = a.Stream
	}
	if a.Domain != "" {
		c.Domain = a.Domain
	}
	if a.Creds != "" {
		c.Auth = Auth{CredsFile: a.Creds}
	}
	c.TLS = c.TLS.WithCA(a.CAFile)
	return nil
}

// Source implements driver.Readable.
func (c *Config) Source(r *driver.Reading) (consume.Source, func(error) error, error) {
	key := r.Key
	if r.Creds != "" {
		key = ""
	}
	options, err := c.ConnectOptions(key)
	if err != nil {
		return nil, nil, err
	}
	choose, err := subjectfilter.Choose(c.Subject, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("bus.nats.subject: %w", err)
	}
	advice := "Set credentials: --creds FILE, or --config FILE with bus.nats.auth in it"
	switch {
	case r.Creds != "":
		advice = "The server rejects the credentials in " + r.Creds + " (--creds): use those of a user who may read the stream"
	case c.Auth != (Auth{}):
		advice = "The server rejects the credentials that bus.nats.auth in " + r.ConfigFile + " names: correct them, or use others with --creds"
	}
	explain := func(err error) error {
		if refusesCredentials(err) {
			return fmt.Errorf("%w\n%s", err, advice)
		}
		return err
	}
	return &consume.JetStream{URL: c.URL, Options: options, Domain: c.Domain, Stream: c.Stream.Name, Choose: choose}, explain, nil
}

func refusesCredentials(err error) bool {
	for _, refused := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
}

// Logs implements driver.Readable.
func (c *Config) Logs(ctx context.Context, r *driver.Reading) ([]consume.Log, error) {
	options, err := c.ConnectOptions(r.Key)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(c.URL, options...)
	if err != nil {
		return nil, nil //nolint:nilerr // see driver.Readable
	}
	defer conn.Close()
	js, err := jetStreamIn(c.Domain, conn)
	if err != nil {
		return nil, nil //nolint:nilerr // see driver.Readable
	}
	stream, err := js.Stream(ctx, c.Stream.Name)
	if err != nil {
		return nil, nil //nolint:nilerr // see driver.Readable
	}
	return []consume.Log{{Name: c.Stream.Name, ID: created(stream.CachedInfo())}}, nil
}
