package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// stages are the parts of the time to the first diff: "agent compiled 2.1 s", "control plane
// started 3.0 s".
type stages struct {
	last time.Time // The end of the last stage, or the beginning of the first.
	text []string
}

// end appends a stage that lasted from the end of the previous one until at.
func (s *stages) end(name string, at time.Time) {
	s.text = append(s.text, fmt.Sprintf("%s %.1f s", name, at.Sub(s.last).Seconds()))
	s.last = at
}

// parse appends stages of the form "agent compiled=1764200000.25,demo compiled=1764200001.5".
func (s *stages) parse(text string) error {
	for stage := range strings.SplitSeq(text, ",") {
		if stage == "" {
			continue
		}
		name, at, _ := strings.Cut(stage, "=")
		end, err := seconds(at)
		if err != nil {
			return fmt.Errorf("DEMO_STAGES: %s: must be a name, = and seconds since 1970, got %q", name, stage)
		}
		s.end(name, end)
	}
	return nil
}

// seconds parses seconds since 1970 with a fraction.
func seconds(text string) (time.Time, error) {
	n, err := strconv.ParseFloat(text, 64)
	return time.UnixMicro(int64(n * 1e6)), err
}
