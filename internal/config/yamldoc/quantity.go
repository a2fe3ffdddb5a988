package yamldoc

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

// Quantity is a number with a unit. Int64 gives the order.
type Quantity interface {
	fmt.Stringer
	Int64() int64
}

// Count is a whole number without a unit.
type Count int

// String returns the decimal digits.
func (c Count) String() string { return strconv.Itoa(int(c)) }

// Int64 implements Quantity.
func (c Count) Int64() int64 { return int64(c) }

// Duration is a time.Duration as a file has it: "2m", "168h", "1m30s", "7d".
type Duration struct {
	time.Duration
}

// UnmarshalText accepts what duration.Parse accepts.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := duration.Parse(string(text))
	if err != nil {
		return fmt.Errorf("must be a duration such as 90s, 2m, 12h or 7d, got %s%s", Quote(string(text)),
			meantDuration(string(text)))
	}
	d.Duration = v
	return nil
}

var unitless = regexp.MustCompile(`^ *([0-9]{1,9}) *(d|w|days?|weeks?|)$`)

// meantDuration suggests a unit for a number without one, and the short form for days and weeks in
// words.
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

// Int64 implements Quantity.
func (d Duration) Int64() int64 { return int64(d.Duration) }

// MarshalText returns String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String returns the shortest form: "168h", not "168h0m0s".
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

// Bytes is a number of bytes, written without a unit or with KiB, MiB, GiB or TiB: "65536",
// "64MiB".
type Bytes int64

// bytesForm begins the error about any other text.
const bytesForm = "must be a number of bytes such as 65536, 64MiB or 20GiB"

// byteUnits returns the units, the largest first: String uses the first one that divides the
// number.
func byteUnits() []struct {
	suffix string
	size   int64
} {
	return []struct {
		suffix string
		size   int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}
}

// UnmarshalText accepts a whole number that is not negative, with or without a unit.
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
		return fmt.Errorf("must be less than 8EiB, got %s", Quote(string(text)))
	case err != nil:
		return fmt.Errorf("%s, got %s%s", bytesForm, Quote(string(text)), meantBytes(string(text)))
	}
	*b = Bytes(int64(n) * size) // n was compared with MaxInt64/size above
	return nil
}

var otherUnit = regexp.MustCompile(`(?i)^ *([0-9]{1,18}) *([kmgt])i?b? *$`)

// meantBytes suggests a size for a number with another unit. Powers of 1000 are not used for
// memory.
func meantBytes(text string) string {
	if m := otherUnit.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf(", did you mean %s%siB?", m[1], strings.ToUpper(m[2]))
	}
	return ""
}

// Int64 implements Quantity.
func (b Bytes) Int64() int64 { return int64(b) }

// MarshalText returns String.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String uses the largest unit that leaves a whole number.
func (b Bytes) String() string {
	for _, u := range byteUnits() {
		if n := int64(b); n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Ratio is a number from 0 to 1.
type Ratio float64

// UnmarshalText accepts a decimal number.
func (r *Ratio) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if percent, ok := strings.CutSuffix(string(text), "%"); ok {
		if p, err := strconv.ParseFloat(strings.TrimSpace(percent), 64); err == nil && p >= 0 && p <= 100 {
			return fmt.Errorf("must be a number from 0 to 1, got %s: write %v", Quote(string(text)), p/100)
		}
	}
	if err != nil || !(v >= 0 && v <= 1) { // NaN is neither
		return fmt.Errorf("must be a number from 0 to 1, got %s", Quote(string(text)))
	}
	*r = Ratio(v)
	return nil
}

// Enum is a text that must be one of a few words.
type Enum interface{ Values() []string }

// OneOf returns "one of a, b", or "a" if that is the only value.
func OneOf(e Enum) string {
	values := e.Values()
	if len(values) == 1 {
		return values[0]
	}
	return "one of " + strings.Join(values, ", ")
}
