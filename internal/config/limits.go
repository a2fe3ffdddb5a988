package config

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// Limit is the range of a number, both ends allowed.
type Limit struct {
	Low, High yamldoc.Quantity
	Zero      bool // 0 is allowed besides, as "none"
}

// Limits are the ranges of all keys that have one. Validate, the JSON Schema and the reference take them from here.
func Limits() map[string]Limit {
	const day = 24 * time.Hour
	lasting := func(low, high time.Duration) Limit {
		return Limit{Low: yamldoc.Duration{Duration: low}, High: yamldoc.Duration{Duration: high}}
	}
	return map[string]Limit{
		"snapshot.every":                     {Low: yamldoc.Duration{Duration: time.Minute}, High: yamldoc.Duration{Duration: 100 * 365 * day}, Zero: true},
		"event.maxBytes":                     {Low: yamldoc.Bytes(64 << 10), High: yamldoc.Bytes(64 << 20)},
		"queue.events":                       {Low: yamldoc.Count(1), High: yamldoc.Count(1 << 24)},
		"queue.bytes":                        {Low: yamldoc.Bytes(64 << 10), High: yamldoc.Bytes(1 << 40)},
		"queue.inFlightBytes":                {Low: yamldoc.Bytes(1 << 20), High: yamldoc.Bytes(1 << 40)},
		"bus.nats.stream.replicas":           {Low: yamldoc.Count(1), High: yamldoc.Count(5)},
		"bus.nats.stream.maxAge":             {Low: yamldoc.Duration{Duration: time.Second}, High: yamldoc.Duration{Duration: 100 * 365 * day}, Zero: true},
		"bus.nats.stream.duplicateWindow":    lasting(100*time.Millisecond, day),
		"bus.kafka.create.partitions":        {Low: yamldoc.Count(1), High: yamldoc.Count(10000)},
		"bus.kafka.create.replicationFactor": {Low: yamldoc.Count(1), High: yamldoc.Count(100)},
		"bus.http.batch":                     {Low: yamldoc.Count(1), High: yamldoc.Count(1000)},
		"bus.http.timeout":                   lasting(100*time.Millisecond, 10*time.Minute),
		"leaderElection.leaseDuration":       lasting(time.Second, time.Hour),
		"leaderElection.renewDeadline":       lasting(500*time.Millisecond, time.Hour),
		"leaderElection.retryPeriod":         lasting(100*time.Millisecond, time.Hour),
		"claimCheck.http.timeout":            lasting(100*time.Millisecond, 10*time.Minute),
	}
}

// String is the range in words: "between 1 and 5".
func (l Limit) String() string {
	s := fmt.Sprintf("between %v and %v", l.Low, l.High)
	if l.Zero {
		return "0 or " + s
	}
	return s
}

// inLimit compares got with the limit of its path.
func inLimit(path *field.Path, got yamldoc.Quantity) field.ErrorList {
	l := Limits()[general(path.String())]
	n := got.Int64()
	if l.Zero && n == 0 || l.Low.Int64() <= n && n <= l.High.Int64() {
		return nil
	}
	return field.ErrorList{field.Invalid(path, got, "must be "+l.String())}
}

// general is the path under which something is known that is said of a key: a relay sends to the same kinds of bus as the
// agent.
func general(path string) string {
	return relayedBus.ReplaceAllString(yamldoc.Generic(path), "bus.$1")
}

var relayedBus = regexp.MustCompile(`^relays\[\]\.to\.(nats|kafka|http|stdout)\b`)

func names[T ~string](values ...T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// inEnum compares got with the values of its type.
func inEnum[T interface {
	~string
	yamldoc.Enum
}](path *field.Path, got T,
) field.ErrorList {
	if slices.Contains(got.Values(), string(got)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, string(got), "must be "+yamldoc.OneOf(got))}
}
