// Package catalog lists the buses that this program can publish to. A new bus needs a package, a
// line in [Buses], a block in configs/kubecdc.yaml and a page in docs/guides; see docs/changing.md.
package catalog

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/http/httpconfig"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/relay/slackconfig"
)

// Buses returns the drivers. The first one is the bus of the default configuration.
func Buses() []*driver.Driver {
	return []*driver.Driver{
		natsconfig.Driver(),
		kafkaconfig.Driver(),
		httpconfig.Driver(),
		stdout.Driver(),
	}
}

// Targets returns the targets of relays: the buses and Slack.
func Targets() []*driver.Driver { return append([]*driver.Driver{slackconfig.Driver()}, Buses()...) }

// Readable returns the buses that store records.
func Readable() []*driver.Driver {
	return slices.DeleteFunc(Buses(), func(d *driver.Driver) bool {
		_, ok := d.Default().(driver.Readable)
		return !ok
	})
}

// Changelogs returns the buses to which a relay can write rows of a table.
func Changelogs() []*driver.Driver {
	return slices.DeleteFunc(Buses(), func(d *driver.Driver) bool {
		_, ok := d.Default().(driver.Changelogger)
		return !ok
	})
}

// Flags returns the flags of the commands that read a bus.
func Flags() (all []driver.Flag) {
	for _, d := range Readable() {
		all = append(all, d.Flags...)
	}
	return all
}

// Named returns the driver with that name, or nil.
func Named(all []*driver.Driver, name string) *driver.Driver {
	if i := slices.IndexFunc(all, func(d *driver.Driver) bool { return d.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// Names returns the names of drivers.
func Names(all []*driver.Driver) []string {
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = d.Name
	}
	return names
}

// URLs returns the URL forms of drivers, for errors and help texts.
func URLs(all []*driver.Driver) string {
	forms := make([]string, len(all))
	for i, d := range all {
		forms[i] = d.URL
	}
	return check.Listed(forms, "or")
}
