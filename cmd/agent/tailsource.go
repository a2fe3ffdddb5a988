package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kubecdc/kubecdc/internal/subjectfilter"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// addBus adds the flags that say where the bus is, and who reads it.
func (f *tailFlags) addBus(fl *pflag.FlagSet) {
	fl.StringVar(&f.bus, "bus", "", "`URL` of the bus: nats://host:port, tls://host:port, kafka://host:port/topic, file:PATH, or - for standard input\n"+
		"(default: the bus of a kubecdc that runs here, else "+defaultURL+")")
	fl.StringVar(&f.config, "config", "", "read the bus of this configuration `file`: bus.nats or bus.kafka, with credentials and certificates")
	fl.StringVar(&f.creds, "creds", "", "`file` with a NATS user's credentials, as nsc writes them")
	fl.StringVar(&f.tlsCA, "tls-ca", "", "`file` with the certificates of authorities to trust, instead of the system's; asks for TLS")
	fl.StringVar(&f.stream, "stream", "", "`name` of the JetStream stream (default: that of --config, else "+consume.DefaultStream+")")
	fl.StringVar(&f.inboxPrefix, "inbox-prefix", "", "`prefix` of the subjects on which the server answers, for a user with a private inbox\n"+
		"(default: that of --config, else _INBOX)")
	fl.StringVar(&f.domain, "domain", "", "`name` of the JetStream domain that has the stream (default: that of --config, else that of the server)")
}

// source returns the bus of the flags. explain adds advice to an error of its Read.
func (f *tailFlags) source(stderr io.Writer) (_ consume.Source, explain func(error) error, _ error) {
	c, err := f.connection(stderr)
	if err != nil {
		return nil, nil, err
	}
	scheme, rest, _ := strings.Cut(c.url, ":")
	switch {
	case c.kafka != nil:
		return c.kafka, func(err error) error { return err }, nil
	case scheme == "file":
		name := strings.TrimPrefix(rest, "//")
		return &consume.File{Path: name}, func(err error) error {
			if wrong := (*fs.PathError)(nil); errors.As(err, &wrong) {
				err = wrong.Err
			}
			return fmt.Errorf("--bus file:%s: %w", name, err)
		}, nil
	case slices.Contains([]string{"nats", "tls", "ws", "wss"}, scheme), f.bus == "": // the configuration has been validated
	default:
		return nil, nil, usageError{errors.New("--bus: want nats://host:port (several separated by commas), tls://host:port, kafka://host:port/topic, file:PATH, or - for standard input")}
	}
	choose, err := subjectfilter.Choose(c.subject, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("bus.nats.subject: %w", err)
	}
	source := &consume.JetStream{URL: c.url, Options: c.options, Domain: c.domain, Stream: c.stream, Choose: choose}
	return source, func(err error) error {
		switch {
		case refusesCredentials(err):
			return fmt.Errorf("%w\n%s", err, c.advice)
		case f.bus == "" && f.config == "":
			return fmt.Errorf("%w\nNo kubecdc with a bus of its own runs here; start one (kubecdc run), or say where the bus is (--bus nats://host:port)", err)
		}
		return err
	}, nil
}
