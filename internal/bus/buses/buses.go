// Package buses has what runs of each bus in package catalog: its writer and its readers, by the
// type of its settings. A configuration needs none of it.
package buses

import (
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/relay"
)

// Of returns what opens a bus, or a target, with its settings; nil if nothing does. It is a
// driver.Reader if the settings are driver.Readable, and a driver.ChangelogOpener if they are a
// driver.Changelogger. Settings that open themselves need no line here.
func Of(c driver.Config) driver.Opener {
	switch c := c.(type) {
	case *http.Config:
		return http.Opener{Config: c}
	case *nats.Config:
		return nats.Opener{Config: c}
	case *kafka.Config:
		return kafka.Opener{Config: c}
	case *relay.SlackConfig:
		return relay.SlackOpener{SlackConfig: c}
	case driver.Opener:
		return c
	}
	return nil
}

// Reader returns what reads a bus that keeps records.
func Reader(c driver.Readable) driver.Reader {
	r, _ := Of(c).(driver.Reader)
	return r
}
