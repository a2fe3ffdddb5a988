package timeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

func zone(t failing, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// Clocks may not show a time, or show it twice. Then a rule decides, and a remark says so.
func TestTimesThatDoNotExistOrExistTwice(t *testing.T) {
	for _, c := range []struct{ zone, text, want, remark string }{
		{
			"Europe/Berlin", "2026-03-29 02:30", "2026-03-29T03:00:00+02:00",
			"02:30:00 does not exist on 2026-03-29 in Europe/Berlin, where clocks were put forward to 03:00:00: taken as 2026-03-29T03:00:00+02:00",
		},
		{"Europe/Berlin", "2026-03-29 02:00", "2026-03-29T03:00:00+02:00", "does not exist"},
		{"Europe/Berlin", "2026-03-29 01:59:59", "2026-03-29T01:59:59+01:00", ""},
		{"Europe/Berlin", "2026-03-29 03:00", "2026-03-29T03:00:00+02:00", ""},
		{
			"Europe/Berlin", "2026-10-25 02:30", "2026-10-25T02:30:00+02:00",
			"02:30:00 exists twice on 2026-10-25 in Europe/Berlin, where clocks were put back: taken as the first, 2026-10-25T02:30:00+02:00, and not as 2026-10-25T02:30:00+01:00",
		},
		{"Europe/Berlin", "2026-10-25 02:00", "2026-10-25T02:00:00+02:00", "exists twice"},
		{"Europe/Berlin", "2026-10-25 03:00", "2026-10-25T03:00:00+01:00", ""},
		{"Europe/Berlin", "2026-10-25T02:30:00+01:00", "2026-10-25T02:30:00+01:00", ""}, // it says which
		{"Europe/Berlin", "2026-10-25", "2026-10-25T00:00:00+02:00", ""},
		{"America/New_York", "2026-11-01 01:30", "2026-11-01T01:30:00-04:00", "exists twice"},
		{"America/New_York", "2026-03-08 02:30", "2026-03-08T03:00:00-04:00", "does not exist"},
		{"Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-05T01:45:00+11:00", "exists twice"}, // half an hour
		// a day that begins at one
		{"America/Sao_Paulo", "2018-11-04", "2018-11-04T01:00:00-02:00", "does not exist"},
		// a day that was left out
		{"Pacific/Apia", "2011-12-30 12:00", "2011-12-31T00:00:00+14:00", "does not exist"},
		{"UTC", "2026-10-25 02:30", "2026-10-25T02:30:00Z", ""},
		{"Europe/Berlin", "2h", "", ""},
		{"Europe/Berlin", "rv:5", "", ""},
		{"Europe/Berlin", "tomorrow", "", ""},
	} {
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, zone(t, c.zone))
		remark := timeline.Remark(c.text, now)
		isUnwanted := c.remark == "" && remark != ""
		if isUnwanted || !strings.Contains(remark, c.remark) {
			t.Errorf("%s in %s: remark %q, want %q", c.text, c.zone, remark, c.remark)
		}
		if c.want == "" {
			continue
		}
		at, err := timeline.ParseTime(c.text, now)
		if err != nil || at.Format(time.RFC3339) != c.want {
			t.Errorf("%s in %s: %s, %v, want %s", c.text, c.zone, at.Format(time.RFC3339), err, c.want)
		}
	}
}

// The oracle shows a clock at each minute of three days.
func TestParseTimeFindsWhatClocksShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		place := zone(t, rapid.SampledFrom([]string{
			"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia",
			"Africa/Casablanca", "Europe/Dublin", "UTC",
		}).Draw(t, "place"))
		jumps := []time.Time{
			time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 4, 4, 0, 0, 0, 0, time.UTC), time.Date(2018, 11, 4, 0, 0, 0, 0, time.UTC),
			time.Date(2018, 2, 18, 0, 0, 0, 0, time.UTC),
			time.Date(2011, 12, 30, 0, 0, 0, 0, time.UTC), time.Date(2025, 2, 23, 0, 0, 0, 0, time.UTC),
		}
		wall := rapid.SampledFrom(jumps).Draw(t, "day").
			Add(time.Duration(rapid.IntRange(-26*60, 50*60).Draw(t, "minutes")) * time.Minute)
		const layout = "2006-01-02 15:04"
		text := wall.Format(layout)
		var shown []time.Time
		for m := -36 * 60; m <= 36*60; m++ {
			if at := wall.Add(time.Duration(m) * time.Minute).In(place); at.Format(layout) == text {
				shown = append(shown, at)
			}
		}
		now := time.Date(2027, 1, 1, 0, 0, 0, 0, place)
		at, err := timeline.ParseTime(text, now)
		remark := timeline.Remark(text, now)
		says := fmt.Sprint(strings.Contains(remark, "does not exist"), strings.Contains(remark, "exists twice"))
		isJump := at.Add(-time.Minute).Format(layout) < text && text < at.Format(layout) // clocks passed text
		switch {
		case err != nil:
			t.Fatal(err)
		case len(shown) > 0 && !at.Equal(shown[0]):
			t.Fatalf("%s: %s, want %s", text, at, shown[0])
		case len(shown) == 0 && !isJump:
			t.Fatalf("%s: %s, want the time at which clocks passed it", text, at)
		case says != fmt.Sprint(len(shown) == 0, len(shown) == 2):
			t.Fatalf("%s: remark %q, and clocks show it at %s", text, remark, shown)
		}
	})
}
