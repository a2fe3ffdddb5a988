package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// rollout returns the record of a rollout, with Events.
func rollout(t *testing.T) (file string, lines []string) {
	t.Helper()
	file = "testdata/rollout.jsonl"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// On a JetStream the Events of some namespaces are read alone; from a file, everything. Both show
// the same.
func TestEventsFromAJetStreamAreThoseOfAFile(t *testing.T) {
	t.Parallel()
	file, lines := rollout(t)
	url := recordedBus(t, t.TempDir(), -1, lines)
	for _, args := range [][]string{
		{"deploy/web", "-n", "shop"},
		{"deploy/web"},
		{"deploy", "-l", "app=web", "-n", "s*"},
		{"pods"},
		{"deploy,rs,cm", "-n", "shop"},
		{"all"},
		{"all", "-n", "shop", "-l", "app=web"},
		{"pv"},
	} {
		for _, span := range [][]string{nil, {"--since", "2026-11-20T14:05:00Z"}, {"--since", "2026-11-20T14:10:00Z"}} {
			for _, until := range []string{"2026-11-20T14:06:00Z", "2026-11-20T14:11:30Z", "rv:160"} {
				if span != nil && until < span[1] {
					continue
				}
				command := append([]string{"history", "--with-events", "--until", until, "-o", "json"},
					append(args, span...)...)
				want := answerOf(t, append(command, "--bus", "file:"+file)...)
				got := answerOfJetStream(t, append(command, "--bus", url)...)
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("%v: -file +JetStream\n%s", command, diff)
				}
			}
		}
	}
}

// The Events of other namespaces, and those before the span, are not read.
func TestEventsOfASpanAreReadAlone(t *testing.T) {
	t.Parallel()
	_, lines := rollout(t)
	var event string
	for _, line := range lines {
		if strings.Contains(line, `"events/e-17b6/149"`) {
			event = line
		}
	}
	const others = 500
	var written []string
	for _, line := range lines {
		written = append(written, line)
		if !strings.Contains(line, `"events/e-17b6/149"`) {
			continue
		}
		for n := range others { // of another namespace
			other := strings.NewReplacer("shop", "bank", "e-17b6", fmt.Sprint("b-", n), "17b6", fmt.Sprint("b", n)).
				Replace(event)
			written = append(written, other)
		}
	}
	url := recordedBus(t, t.TempDir(), -1, written)
	for _, namespace := range []string{"shop", ""} {
		wanted, err := record.NewSelection([]string{"deploy/web"}, namespace, "", "")
		if err != nil {
			t.Fatal(err)
		}
		var flags askFlags
		flags.bus.Bus = url
		past, err := flags.open(io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var out, said strings.Builder
		q := answers.New(past, wanted, printer.Format{Name: printer.Table},
			&terminal.Output{Writer: &out}, &terminal.Output{Writer: &said})
		q.Exact = true
		if err := q.Resolve(t.Context()); err != nil {
			t.Fatal(err)
		}
		since := timeline.At(time.Date(2026, 11, 20, 14, 4, 0, 0, time.UTC))
		until := timeline.At(time.Date(2026, 11, 20, 14, 11, 0, 0, time.UTC))
		if err := q.History(t.Context(), &answer.Span{Since: &since, Until: until, Events: true}); err != nil {
			t.Fatalf("%v: %s", err, &said)
		}
		if n := strings.Count(out.String(), " Event "); n != 10 || strings.Contains(out.String(), "bank") {
			t.Errorf("%d Events, want 10:\n%s", n, &out)
		}
		t.Logf("namespace %q: %d events read", namespace, q.Record.Events())
		if n := q.Record.Events(); n > others/2 {
			t.Errorf("namespace %q: %d events were read, and %d are of another one", namespace, n, others)
		}
	}
}
