package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// evidence counts the changes that tail has shown, based on its lines on the screen. Safe for
// concurrent use.
type evidence struct {
	started time.Time
	stages  *stages // those before the first change

	mu       sync.Mutex
	created  int
	updated  int // with a line that shows the change
	deleted  int
	inUpdate bool          // the last header is that of an update, and no line with its changes has come yet
	first    time.Duration // from started to the first such line
}

// note takes the next line that tail has written. It is a header, "15:04:05 updated configmaps
// shop/settings …", or an indented line below a header, with a sign for a removal or an addition.
func (e *evidence) note(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if detail := strings.TrimLeft(line, " "); detail != line {
		if e.inUpdate && (strings.HasPrefix(detail, "-") || strings.HasPrefix(detail, "+")) {
			e.inUpdate = false
			e.updated++
			if e.updated == 1 {
				e.first = time.Since(e.started)
			}
		}
		return
	}
	e.inUpdate = false
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return
	}
	switch fields[1] {
	case "created":
		e.created++
	case "updated":
		e.inUpdate = true
	case "deleted":
		e.deleted++
	}
}

func (e *evidence) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := fmt.Sprintf("shown: %d created, %d updated with what changed, %d deleted", e.created, e.updated, e.deleted)
	if e.updated > 0 {
		s += fmt.Sprintf("; first diff after %.1f s", e.first.Seconds())
		if e.stages != nil && len(e.stages.text) > 0 {
			s += fmt.Sprintf(" (%s, first diff %.1f s)", strings.Join(e.stages.text, ", "),
				(e.first - e.stages.last.Sub(e.started)).Seconds())
		}
	}
	return s
}

// check returns an error unless tail has shown the expected changes: any change of a cluster that
// is followed, or one of every kind if the demo made the changes.
func (e *evidence) check(followed bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case followed && e.created+e.updated+e.deleted == 0:
		return errors.New("kubecdc tail has shown no change: did nothing change in the cluster?")
	case !followed && (e.created == 0 || e.updated == 0 || e.deleted == 0):
		return errors.New(
			"kubecdc tail has not shown all of it: something created, something updated and something deleted")
	}
	return nil
}
