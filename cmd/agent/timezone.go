package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // for systems without a database of time zones, such as images

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// timeZone is the value of --tz.
type timeZone struct{ *time.Location }

func (z *timeZone) String() string {
	if z.Location == nil {
		return ""
	}
	return z.Location.String()
}

func (z *timeZone) Type() string { return "string" }

// Set implements pflag.Value.
func (z *timeZone) Set(text string) error {
	if strings.EqualFold(text, "utc") {
		z.Location = time.UTC
		return nil
	}
	if regexp.MustCompile(`^[+-]\d\d:\d\d$`).MatchString(text) {
		t, err := time.Parse("Z07:00", text)
		if err == nil {
			_, offset := t.Zone()
			z.Location = time.FixedZone(text, offset)
			return nil
		}
	}
	location, err := time.LoadLocation(text)
	if err != nil || text == "" || text == "Local" {
		return flagError(
			fmt.Sprintf("--tz %q: want a name of a time zone like Europe/Berlin, UTC, or an offset like +02:00", text))
	}
	z.Location = location
	return nil
}

func addTimeZone(cmd *cobra.Command) {
	cmd.Flags().
		Var(&timeZone{}, "tz",
			"read and show times in this time `zone`: Europe/Berlin, UTC or +02:00 (default: that of the system, or $TZ)")
	completeWords(cmd, "tz", "UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
}

// useTimeZone makes the time zone of --tz the local one. It must be called before anything reads or
// shows a time.
func useTimeZone(cmd *cobra.Command) {
	f := cmd.Flags().Lookup("tz")
	if f == nil {
		return
	}
	z, ok := f.Value.(*timeZone)
	if ok && z.Location != nil {
		time.Local = z.Location //nolint:gosmopolitan // as the variable TZ does
	}
}

// remark says on stderr how a moment was read, if its time does not exist or exists twice.
func remark(stderr io.Writer, text string, now time.Time) {
	if said := timeline.Remark(text, now); said != "" {
		fmt.Fprintf(stderr, "kubecdc: %s\n", said)
	}
}
