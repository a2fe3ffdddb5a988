package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/publish/drivers"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// addBus adds the flags for the location of the bus and for the credentials of the reader.
func (f *tailFlags) addBus(cmd *cobra.Command) {
	addOverrides(cmd, &f.Overrides)
	addTimeZone(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.Bus, "bus", "", "`URL` of the bus: nats://host:port, tls://host:port, kafka://host:port/topic,"+f.otherForms()+"\n"+
		"(default: the bus of a kubecdc that runs here, else "+agent.DefaultBus+")")
	fl.StringVar(&f.DataDir, "data-dir", "", "`directory` of the kubecdc that runs here, if it was started with one")
	fl.StringVar(&f.Config, "config", "", "read the bus of this configuration `file`: bus.nats or bus.kafka, with credentials and certificates")
	fl.StringVar(&f.access.Creds, "creds", "", "`file` with a NATS user's credentials, as nsc writes them")
	fl.StringVar(&f.access.CAFile, "tls-ca", "", "`file` with the certificates of authorities to trust, instead of the system's; requires TLS")
	fl.StringVar(&f.access.Stream, "stream", "", "`name` of the JetStream stream (default: that of --config, else "+fromnats.DefaultStream+")")
	fl.StringVar(&f.access.InboxPrefix, "inbox-prefix", "", "`prefix` of the subjects on which the server answers, for a user with a private inbox\n"+
		"(default: that of --config, else _INBOX)")
	fl.StringVar(&f.access.Domain, "domain", "", "`name` of the JetStream domain that has the stream (default: that of --config, else that of the server)")
}

// otherForms returns the values of --bus that are no URLs of buses, for people.
func (f *tailFlags) otherForms() string {
	if f.stdin {
		return " file:PATH, or - for standard input"
	}
	return " or file:PATH"
}

// source returns the bus of the flags. explain adds advice to an error of its Read.
func (f *tailFlags) source(stderr io.Writer) (_ consume.Source, explain func(error) error, _ error) {
	if name, ok := strings.CutPrefix(f.Bus, "file:"); ok {
		name = strings.TrimPrefix(name, "//")
		return &fromfile.File{Path: name}, func(err error) error {
			if wrong := (*fs.PathError)(nil); errors.As(err, &wrong) {
				err = wrong.Err
			}
			return fmt.Errorf("--bus file:%s: %w", name, err)
		}, nil
	}
	source, refused, err := f.OpenRecord(&f.access, stderr)
	switch {
	case errors.Is(err, agent.ErrNotABus):
		return nil, nil, usageError{fmt.Errorf("--bus: want %s (several servers separated by commas),%s", drivers.URLs(drivers.Readable()), f.otherForms())}
	case err != nil:
		return nil, nil, err
	}
	return source, func(err error) error {
		explained := refused(err)
		if f.Embedded() && explained == err { //nolint:errorlint // it was not wrapped
			return fmt.Errorf("%w\nNo kubecdc with a bus of its own runs here; start one (kubecdc run), or give its URL (--bus nats://host:port)", err)
		}
		return explained
	}, nil
}
