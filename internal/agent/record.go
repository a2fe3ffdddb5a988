package agent

import (
	"errors"
	"io"

	"github.com/kubecdc/kubecdc/internal/bus/buses"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// ErrNotABus is the error of a URL in Options.Bus that names no bus that keeps records.
var ErrNotABus = errors.New("no bus that keeps records")

// OpenRecord returns the bus of the options, which a command reads with access. explain adds advice
// to an error of its Read. If the bus is the embedded JetStream and several run, OpenRecord lists
// the others on stderr. It finds the token of an embedded JetStream.
func (o *Options) OpenRecord(
	access *driver.Access, stderr io.Writer,
) (_ consume.Source, explain func(error) error, _ error) {
	if err := o.checkDataDir(); err != nil {
		return nil, nil, err
	}
	cfg, err := o.configured()
	if err != nil {
		return nil, nil, err
	}
	chosen, url := cfg.Bus, o.Bus
	if o.IsEmbedded() {
		url, err = FindBus(o.DataDir, stderr)
		if err != nil {
			return nil, nil, err
		}
	}
	if url != "" {
		var ok bool
		chosen, ok = BusOf(url, o.DataDir, cfg.Bus)
		if !ok {
			return nil, nil, ErrNotABus
		}
	}
	d, settings := chosen.Chosen()
	bus, ok := settings.(driver.Readable)
	switch {
	case !ok && o.Bus != "":
		return nil, nil, ErrNotABus
	case !ok:
		return nil, nil, ConfigError{errors.New("the configured bus keeps no records: give one that does with --bus")}
	}
	if err := bus.SetAccess(access); err != nil {
		return nil, nil, ConfigError{err}
	}
	r := &driver.Reading{ConfigFile: o.Config, Cluster: cfg.Cluster, DeadLetter: cfg.DeadLetter.Of(d)}
	if o.Config != "" {
		r.Key = "bus." + d.Name
	}
	return buses.Reader(bus).Source(r)
}

// CopiesOf returns a function that returns how many partitions of the bus have a copy of an event
// about the stream.
func (o *Options) CopiesOf() (func([]consume.Position, *consume.Event) int, error) {
	cfg, err := o.configured()
	if err != nil {
		return nil, err
	}
	chosen := cfg.Bus
	if o.Bus != "" {
		chosen, err = BusFromURL(o.Bus, cfg.Bus)
		if err != nil {
			return nil, err
		}
	}
	_, settings := chosen.Chosen()
	partitioned, ok := buses.Of(settings).(driver.Partitioned)
	if !ok {
		return func([]consume.Position, *consume.Event) int { return 1 }, nil
	}
	return partitioned.CopiesOf, nil
}

// configured returns the configuration without Bus.
func (o *Options) configured() (*config.Config, error) {
	return (&Options{Config: o.Config, Overrides: o.Overrides}).LoadConfig()
}
