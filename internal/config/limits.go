package config

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/bus/http/httpconfig"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// Limits returns the ranges of all keys that have one. Validate, the JSON Schema and the reference
// use them.
func Limits() map[string]check.Limit {
	const day = 24 * time.Hour
	lasting := func(low, high time.Duration) check.Limit {
		return check.Limit{Low: yamldoc.Duration{Duration: low}, High: yamldoc.Duration{Duration: high}}
	}
	all := map[string]check.Limit{
		"snapshot.every": {Low: yamldoc.Duration{Duration: time.Minute}, High: yamldoc.Duration{
			Duration: 100 * 365 * day,
		}, Zero: true},
		"snapshot.unpagedObjects":      {Low: yamldoc.Count(0), High: yamldoc.Count(1 << 24)},
		"event.maxBytes":               {Low: yamldoc.Bytes(64 << 10), High: yamldoc.Bytes(64 << 20)},
		"queue.events":                 {Low: yamldoc.Count(1), High: yamldoc.Count(1 << 24)},
		"queue.bytes":                  {Low: yamldoc.Bytes(64 << 10), High: yamldoc.Bytes(1 << 40)},
		"queue.inFlightBytes":          {Low: yamldoc.Bytes(1 << 20), High: yamldoc.Bytes(1 << 40)},
		"leaderElection.leaseDuration": lasting(time.Second, time.Hour),
		"leaderElection.renewDeadline": lasting(500*time.Millisecond, time.Hour),
		"leaderElection.retryPeriod":   lasting(100*time.Millisecond, time.Hour),
		"claimCheck.http.timeout":      httpconfig.TimeoutLimit(),
	}
	for _, d := range catalog.Buses() {
		for name, key := range d.Keys {
			if key.Limit != (check.Limit{}) {
				all["bus."+d.Name+"."+name] = key.Limit
			}
		}
	}
	return all
}

// inLimit compares got with the limit of its path.
func inLimit(path *field.Path, got yamldoc.Quantity) field.ErrorList {
	return check.InLimit(path, got, Limits()[general(path.String())])
}

// general returns the path that has the facts about a key: a relay can send to the same buses as
// the agent.
func general(path string) string {
	path = yamldoc.Generic(path)
	rest, ok := strings.CutPrefix(path, "relays[].to.")
	if name, _, _ := strings.Cut(rest, "."); ok && catalog.Named(catalog.Buses(), name) != nil {
		return "bus." + rest
	}
	return path
}
