package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/duration"
)

// Duration is a time.Duration as a file has it: "2m", "168h", "1m30s", "7d".
type Duration struct {
	time.Duration
}

// UnmarshalText reads Go's units, days and weeks.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := duration.Parse(string(text))
	if err != nil {
		return fmt.Errorf("must be a duration such as 90s, 2m, 12h or 7d, got %s%s", show(string(text)), meantDuration(string(text)))
	}
	d.Duration = v
	return nil
}

var unitless = regexp.MustCompile(`^ *([0-9]{1,9}) *(d|w|days?|weeks?|)$`)

// meantDuration suggests a unit for a number without one, and the short form for days and weeks in words.
func meantDuration(text string) string {
	m := unitless.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	n, err := strconv.Atoi(m[1])
	switch {
	case err != nil:
		return ""
	case m[2] == "":
		return fmt.Sprintf(": it has no unit, did you mean %ds?", n)
	}
	return fmt.Sprintf(", did you mean %d%c?", n, m[2][0])
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is the shortest form: "168h", not "168h0m0s".
func (d Duration) String() string {
	s := d.Duration.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Bytes is a number of bytes, written plain or with KiB, MiB, GiB or TiB: "65536", "64MiB".
type Bytes int64

// bytesForm is what is wrong with anything else.
const bytesForm = "must be a number of bytes such as 65536, 64MiB or 20GiB"

// byteUnits are from the largest to the smallest, so that the first which divides a number is the one to write.
func byteUnits() []struct {
	suffix string
	size   int64
} {
	return []struct {
		suffix string
		size   int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}
}

// UnmarshalText reads a whole number that is not negative, with or without a unit.
func (b *Bytes) UnmarshalText(text []byte) error {
	digits, size := string(text), int64(1)
	for _, u := range byteUnits() {
		if rest, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, size = rest, u.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > uint64(math.MaxInt64/size):
		return fmt.Errorf("must be less than 8EiB, got %s", show(string(text)))
	case err != nil:
		return fmt.Errorf("%s, got %s%s", bytesForm, show(string(text)), meantBytes(string(text)))
	}
	*b = Bytes(int64(n) * size) // n was compared with MaxInt64/size above
	return nil
}

var otherUnit = regexp.MustCompile(`(?i)^ *([0-9]{1,18}) *([kmgt])i?b? *$`)

// meantBytes is what a number with another unit probably means. Powers of 1000 are not for bounds of memory.
func meantBytes(text string) string {
	if m := otherUnit.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf(", did you mean %s%siB?", m[1], strings.ToUpper(m[2]))
	}
	return ""
}

// MarshalText is String.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String has the largest unit that leaves a whole number.
func (b Bytes) String() string {
	for _, u := range byteUnits() {
		if n := int64(b); n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Ratio is a part of a whole, from 0 to 1.
type Ratio float64

// UnmarshalText reads a decimal number.
func (r *Ratio) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if percent, ok := strings.CutSuffix(string(text), "%"); ok {
		if p, err := strconv.ParseFloat(strings.TrimSpace(percent), 64); err == nil && p >= 0 && p <= 100 {
			return fmt.Errorf("must be a number from 0 to 1, got %s: write %v", show(string(text)), p/100)
		}
	}
	if err != nil || !(v >= 0 && v <= 1) { // not a number is neither
		return fmt.Errorf("must be a number from 0 to 1, got %s", show(string(text)))
	}
	*r = Ratio(v)
	return nil
}
