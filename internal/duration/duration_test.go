package duration_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/duration"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "0": 0, "0s": 0, "0d": 0,
		"7d":     7 * day,
		"1d12h":  36 * time.Hour,
		"2w":     14 * day,
		"1w1d1h": 8*day + time.Hour,
		"1.5d":   36 * time.Hour,
		".5d":    12 * time.Hour,
		"-1d":    -day,
		"-1d1h":  -25 * time.Hour,
		"+1d":    day,
		"36500d": 36500 * day,
	} {
		if got, err := duration.Parse(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-", "d", "7", "7 d", "7days", "7D", "1h1d", "1d-1h", "1d+1h", "--1d", "-+1d", "1d 1h", "1M", "1y",
		"1.2.3d", ".d",
		"99999999999d", "53375d53375d53375d", "106751d2562047h", "NaNd", "infd", "1ed",
	} {
		if got, err := duration.Parse(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// Parse reads any duration that Go prints, also after days.
func TestParseReadsGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, 1<<61).Draw(t, "duration"))
		if got, err := duration.Parse(d.String()); err != nil || got != d {
			t.Fatalf("%v: got %v, %v", d, got, err)
		}
		days := rapid.IntRange(0, 10000).Draw(t, "days")
		want := time.Duration(days)*24*time.Hour + d
		if got, err := duration.Parse(fmt.Sprintf("%dd%v", days, d)); err != nil || got != want {
			t.Fatalf("%dd%v: got %v, %v", days, d, got, err)
		}
	})
}
