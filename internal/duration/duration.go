// Package duration reads durations as Go writes them, and also days and weeks: 90s, 1h30m, 7d, 2w.
// It is pure: no state, no goroutines.
package duration

import (
	"errors"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// long is a leading part in a unit that Go does not have. A day is 24 hours, a week 7 days.
var long = regexp.MustCompile(`^([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([dw])`)

var errForm = errors.New("not a duration")

// Parse reads a sequence of numbers with units: w, d, and those of time.ParseDuration. Weeks and
// days come first. The error says nothing about the text: its caller knows the key or flag.
func Parse(text string) (time.Duration, error) {
	rest, sign := text, 1
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		if rest[0] == '-' {
			sign = -1
		}
		rest = rest[1:]
	}
	sum := time.Duration(0)
	for {
		m := long.FindStringSubmatch(rest)
		if m == nil {
			break
		}
		unit := 24 * time.Hour
		if m[2] == "w" {
			unit *= 7
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil || n*float64(unit) > float64(1<<62) {
			return 0, errForm
		}
		sum += time.Duration(n * float64(unit))
		if sum > 1<<62 {
			return 0, errForm
		}
		rest = rest[len(m[0]):]
		if rest == "" {
			return time.Duration(sign) * sum, nil
		}
	}
	if rest == "" || rest[0] == '-' || rest[0] == '+' {
		return 0, errForm
	}
	d, err := time.ParseDuration(rest)
	if err != nil || sum+d < 0 {
		return 0, errForm
	}
	return time.Duration(sign) * (sum + d), nil
}

// Flag is the value of a flag that is a duration.
type Flag time.Duration

var _ pflag.Value = (*Flag)(nil)

// Set implements pflag.Value.
func (f *Flag) Set(text string) error {
	d, err := Parse(text)
	if err != nil {
		return errors.New("must be a duration such as 90s, 2m, 12h or 7d")
	}
	*f = Flag(d)
	return nil
}

// String implements pflag.Value.
func (f *Flag) String() string { return time.Duration(*f).String() }

// Type implements pflag.Value.
func (*Flag) Type() string { return "duration" }
