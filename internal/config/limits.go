package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limit is the range of a number, both ends allowed.
type Limit struct {
	Low, High number
	Zero      bool // 0 is allowed besides, as "none"
}

// number is what is ordered by an integer underneath: a count, Bytes or a Duration.
type number interface {
	fmt.Stringer
	number() int64
}

// count is a plain whole number.
type count int

func (n count) String() string   { return fmt.Sprint(int(n)) }
func (n count) number() int64    { return int64(n) }
func (b Bytes) number() int64    { return int64(b) }
func (d Duration) number() int64 { return int64(d.Duration) }

// Limits are the ranges of all keys that have one. Validate, the JSON Schema and the reference take them from here.
func Limits() map[string]Limit {
	const day = 24 * time.Hour
	return map[string]Limit{
		"snapshot.every":                     {Low: Duration{time.Minute}, High: Duration{100 * 365 * day}, Zero: true},
		"event.maxBytes":                     {Low: Bytes(64 << 10), High: Bytes(64 << 20)},
		"queue.events":                       {Low: count(1), High: count(1 << 24)},
		"queue.bytes":                        {Low: Bytes(64 << 10), High: Bytes(1 << 40)},
		"queue.inFlightBytes":                {Low: Bytes(1 << 20), High: Bytes(1 << 40)},
		"bus.nats.stream.replicas":           {Low: count(1), High: count(5)},
		"bus.nats.stream.maxAge":             {Low: Duration{time.Second}, High: Duration{100 * 365 * day}, Zero: true},
		"bus.nats.stream.duplicateWindow":    {Low: Duration{100 * time.Millisecond}, High: Duration{day}},
		"bus.kafka.create.partitions":        {Low: count(1), High: count(10000)},
		"bus.kafka.create.replicationFactor": {Low: count(1), High: count(100)},
		"bus.http.batch":                     {Low: count(1), High: count(1000)},
		"bus.http.timeout":                   {Low: Duration{100 * time.Millisecond}, High: Duration{10 * time.Minute}},
		"leaderElection.leaseDuration":       {Low: Duration{time.Second}, High: Duration{time.Hour}},
		"leaderElection.renewDeadline":       {Low: Duration{500 * time.Millisecond}, High: Duration{time.Hour}},
		"leaderElection.retryPeriod":         {Low: Duration{100 * time.Millisecond}, High: Duration{time.Hour}},
		"claimCheck.http.timeout":            {Low: Duration{100 * time.Millisecond}, High: Duration{10 * time.Minute}},
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
func inLimit(path *field.Path, got number) field.ErrorList {
	l := Limits()[general(path.String())]
	n := got.number()
	if l.Zero && n == 0 || l.Low.number() <= n && n <= l.High.number() {
		return nil
	}
	return field.ErrorList{field.Invalid(path, got, "must be "+l.String())}
}

// general is the path under which something is known that is said of a key: a relay sends to the same kinds of bus as the
// agent.
func general(path string) string {
	return relayedBus.ReplaceAllString(indexes.ReplaceAllString(path, "[]"), "bus.$1")
}

var indexes = regexp.MustCompile(`\[[0-9]+\]`)

var relayedBus = regexp.MustCompile(`^relay\[\]\.to\.(nats|kafka|http|stdout)\b`)

// Enum is a text that has to be one of a few.
type Enum interface{ Values() []string }

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
	Enum
}](path *field.Path, got T,
) field.ErrorList {
	if slices.Contains(got.Values(), string(got)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, string(got), "must be "+oneOf(got))}
}

// oneOf is "one of a, b", or "a" where there is no choice.
func oneOf(e Enum) string {
	values := e.Values()
	if len(values) == 1 {
		return values[0]
	}
	return "one of " + strings.Join(values, ", ")
}
