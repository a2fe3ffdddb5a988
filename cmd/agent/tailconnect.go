package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/publish/drivers"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// connect returns the bus that the flags name. explain adds advice to an error of its Read.
func (f *tailFlags) connect(stderr io.Writer) (source consume.Source, explain func(error) error, err error) {
	cfg, err := f.configured()
	if err != nil {
		return nil, nil, err
	}
	chosen, url := cfg.Bus, f.bus
	if f.embedded() {
		url = agent.FindBus(stderr)
	}
	if url != "" {
		var ok bool
		if chosen, ok = config.BusOf(url, cfg.Bus); !ok {
			return nil, nil, f.errBus()
		}
	}
	d, settings := chosen.Chosen()
	bus, ok := settings.(driver.Readable)
	switch {
	case !ok && f.bus != "":
		return nil, nil, f.errBus()
	case !ok:
		return nil, nil, usageError{errors.New("the configured bus keeps no records: give a NATS or Kafka with --bus")}
	}
	if err := bus.SetAccess(&driver.Access{Creds: f.creds, CAFile: f.tlsCA, Stream: f.stream, InboxPrefix: f.inboxPrefix, Domain: f.domain}); err != nil {
		return nil, nil, usageError{err}
	}
	r := &driver.Reading{ConfigFile: f.config, Creds: f.creds, Cluster: cfg.Cluster, DeadLetter: cfg.DeadLetter.Of(d)}
	if f.config != "" {
		r.Key = "bus." + d.Name
	}
	return bus.Source(r)
}

func (f *tailFlags) errBus() error {
	last := " or file:PATH"
	if f.stdin {
		last = " file:PATH, or - for standard input"
	}
	return usageError{fmt.Errorf("--bus: want %s (several servers separated by commas),%s", drivers.URLs(drivers.Readable()), last)}
}

// configured returns the configuration of the flags, without --bus.
func (f *tailFlags) configured() (*config.Config, error) {
	return (&agent.Options{Config: f.config, Overrides: f.Overrides}).LoadConfig()
}

// embedded reports whether the bus is the embedded JetStream of an agent.
func (f *tailFlags) embedded() bool {
	return (&agent.Options{Config: f.config, Bus: f.bus, Overrides: f.Overrides}).Embedded()
}
