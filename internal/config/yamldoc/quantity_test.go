package yamldoc_test

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"168h":   168 * time.Hour,
		"2m":     2 * time.Minute,
		"1m30s":  90 * time.Second,
		"0s":     0,
		"100ms":  100 * time.Millisecond,
		"1h0m5s": time.Hour + 5*time.Second,
		"-1h":    -time.Hour,
		"20m":    20 * time.Minute,
		"10h":    10 * time.Hour,
	} {
		var d yamldoc.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.Duration != want {
			t.Errorf("%q: got %v, %v", text, d.Duration, err)
		}
		if d.String() != text {
			t.Errorf("%q: written as %q", text, d)
		}
	}
	for text, want := range map[string]string{"7d": "168h", "2w": "336h", "1d12h": "36h"} {
		var d yamldoc.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.String() != want {
			t.Errorf("%q: got %v, %v, want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"", "7 days", "2", "1 h", "h"} {
		var d yamldoc.Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: no error, got %v", text, d)
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]yamldoc.Bytes{
		"0": 0, "1": 1, "1023": 1023, "1KiB": 1024, "64MiB": 64 << 20, "20GiB": 20 << 30, "3TiB": 3 << 40, "1025": 1025,
		"8388607TiB": 8388607 << 40, "9223372036854775807": 1<<63 - 1,
	} {
		var b yamldoc.Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q: got %v, %v", text, int64(b), err)
		}
		if b.String() != text {
			t.Errorf("%q: written as %q", text, b)
		}
	}
	for _, text := range []string{
		"", "MiB", "-1", "1.5GiB", "64MB", "64M", "1 KiB", "0x10", "8388608TiB", "9223372036854775808",
	} {
		var b yamldoc.Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: no error, got %v", text, b)
		}
	}
}
