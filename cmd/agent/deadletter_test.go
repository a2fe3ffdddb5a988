package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// stuckFake has one stuck event until it is given up.
type stuckFake struct{ given []string }

func (s *stuckFake) Stuck() []publish.Stuck {
	if len(s.given) > 0 {
		return nil
	}
	return []publish.Stuck{{
		ID:        "pods/u/7",
		Resource:  "pods",
		Namespace: "shop",
		Name:      "web-1",
		Since:     time.Now().Add(-90 * time.Second),
		Failures:  4,
		Alone:     true,
		Err:       "connection: the server cuts the connection",
	}}
}

func (s *stuckFake) DeadLetter(id string) error {
	if id != "pods/u/7" || len(s.given) > 0 {
		return fmt.Errorf("%w: %s", publish.ErrNotStuck, id)
	}
	s.given = append(s.given, id)
	return nil
}

func TestDeadLetterCommand(t *testing.T) {
	var events admin.StuckEvents = new(stuckFake)
	s := admin.New(admin.Options{
		Registry: prometheus.NewRegistry(),
		Checks:   admin.NewChecks(nil),
		Stuck:    func() admin.StuckEvents { return events },
	})
	agent := listening(t, s.SocketHandler())
	command := func(want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"dead-letter", "--agent", agent}, args...), &stdout,
			&stderr); code != want {
			t.Errorf("%v: exit code %d, want %d", args, code, want)
		}
		return stdout.String() + stderr.String()
	}
	const list = `EVENT      OBJECT          AGE     ATTEMPTS   ISOLATED   ERROR
pods/u/7   pods shop/web-1   1m30s   4          true       connection: the server cuts the connection
`
	if diff := cmp.Diff(strings.Fields(list), strings.Fields(command(exitOK))); diff != "" {
		t.Error(diff)
	}
	if got := command(exitOK, "-o", "json"); !strings.Contains(got, `"isolated": true`) {
		t.Errorf("got %s", got)
	}
	if got := command(exitFailed, "pods/u/8"); !strings.Contains(got, "no such event is being retried: pods/u/8") {
		t.Errorf("got %s", got)
	}
	if got, want := command(exitOK, "pods/u/7"),
		"pods/u/7 was moved to the dead letters; the bus gets a gap in its place\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := command(exitOK), "The bus accepts all events.\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	events = nil
	if got := command(exitFailed, "pods/u/7"); !strings.Contains(got, "this agent does not publish") {
		t.Errorf("got %s", got)
	}
	if got := command(exitUsage, "a", "b"); !strings.Contains(got, "name one event") {
		t.Errorf("got %s", got)
	}
	if got := command(exitUsage, "-o", "xml"); !strings.Contains(got, "must be one of table, wide, json, yaml") {
		t.Errorf("got %s", got)
	}
}
