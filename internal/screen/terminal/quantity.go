package terminal

import (
	"fmt"
	"time"
)

// Duration formats a duration with its two largest units: 2d3h, 4m10s, 5s.
func Duration(d time.Duration) string {
	d = d.Truncate(time.Second)
	switch day := 24 * time.Hour; {
	case d >= 2*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// Size formats a number of bytes: 512 B, 1.5 KiB, 64 MiB.
func Size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, names := float64(n)/unit, []string{"KiB", "MiB", "GiB", "TiB"}
	for v >= unit && len(names) > 1 {
		v, names = v/unit, names[1:]
	}
	if v < 10 {
		return fmt.Sprintf("%.1f %s", v, names[0])
	}
	return fmt.Sprintf("%.0f %s", v, names[0])
}
