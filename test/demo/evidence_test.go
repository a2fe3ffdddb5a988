package main

import (
	"strings"
	"testing"
	"time"
)

func TestEvidence(t *testing.T) {
	const (
		day     = "2026-11-21 UTC\n"
		created = "15:04:05 created  configmaps  shop/settings  by kubectl-create\n"
		updated = "15:04:06 updated  configmaps  shop/settings  by kubectl-edit\n"
		detail  = "  data:\n    - a: 1\n    + a: 2\n"
		deleted = "15:04:07 deleted  configmaps  shop/settings\n"
	)
	for name, c := range map[string]struct {
		lines        string
		demo, follow bool // complete
	}{
		"nothing":                       {day, false, false},
		"all":                           {day + created + updated + detail + deleted, true, true},
		"no difference below an update": {created + updated + deleted + "  - not of the update\n", false, true},
		"nothing deleted":               {created + updated + detail, false, true},
		"only an update":                {updated + detail, false, true},
		"times with a date, as in a pipe": {
			strings.ReplaceAll(created+updated+detail+deleted, "15:", "2026-11-21T15:"), true, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &evidence{started: time.Now()}
			for line := range strings.Lines(c.lines) {
				e.note(plain(line))
			}
			if err := e.check(false); (err == nil) != c.demo {
				t.Errorf("as a demo: got error %v, want one: %v (%s)", err, !c.demo, e)
			}
			if err := e.check(true); (err == nil) != c.follow {
				t.Errorf("as one that follows: got error %v, want one: %v (%s)", err, !c.follow, e)
			}
		})
	}
}
