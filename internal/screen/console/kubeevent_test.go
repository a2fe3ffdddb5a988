package console_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

func showEvent(t *testing.T, width int, view console.View, e console.KubernetesEvent) string {
	t.Helper()
	var b bytes.Buffer
	p := console.New(&terminal.Output{Writer: &b, Width: width}, console.Options{View: view, Location: time.UTC})
	if err := p.PrintKubernetesEvent(&e); err != nil {
		t.Fatal(err)
	}
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// At a terminal, the message of an Event is whole below its line, in lines that fit. Control
// characters are escaped.
func TestMessageOfAnEvent(t *testing.T) {
	at := time.Date(2026, 11, 20, 14, 5, 0, 0, time.UTC)
	const message = "0/3 nodes are available: 3 Insufficient memory.\n\x1b[2Jpreemption: ｎｏ ｖｉｃｔｉｍｓ ｆｏｕｎｄ for incoming pod " +
		"averyveryveryveryveryveryveryveryveryveryverylongword.\n\nend"
	e := console.KubernetesEvent{
		Time:      at,
		Resource:  "pods",
		Namespace: "shop",
		Name:      "web-1",
		Type:      "Warning",
		Reason:    "FailedScheduling",
		Message:   message,
		By:        "default-scheduler",
		Count:     1,
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), "") }
	for width := 29; width < 130; width += 7 {
		text := showEvent(t, width, console.Diff, e)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		for _, line := range lines {
			if displaywidth.String(line) > width || strings.ContainsRune(line, '\x1b') {
				t.Errorf("width %d: %q", width, line)
			}
		}
		below := text[strings.Index(text, "\n    ")+1:]
		if want := words(strings.ReplaceAll(message, "\x1b", `\u001b`)); words(below) != want {
			t.Errorf("width %d: the message is\n%s\nwant\n%s", width, words(below), want)
		}
	}
}

// An Event says how often it happened, and when, if that is not when it was observed.
func TestTimesOfAnEvent(t *testing.T) {
	at := time.Date(2026, 11, 20, 14, 5, 0, 0, time.UTC)
	e := console.KubernetesEvent{
		Time:     at,
		Resource: "widgets.demo.example.com",
		Name:     "gear",
		Type:     "Normal",
		Reason:   "Synced",
		Message:  "done\nwell",
		Count:    1,
		First:    at,
		Last:     at,
	}
	const head = "2026-11-20T14:05:00Z Event    widgets.demo.example.com gear                         Normal Synced: done\\nwell"
	for _, c := range []struct {
		change func(*console.KubernetesEvent)
		want   string
	}{
		{func(*console.KubernetesEvent) {}, ""},
		{func(e *console.KubernetesEvent) { e.Late, e.Last = true, at.Add(-time.Minute) }, " (at 14:04:00)"},
		{func(e *console.KubernetesEvent) { e.Late, e.Last = true, at.AddDate(0, 0, -1) }, " (at 2026-11-19 14:05:00)"},
		{func(e *console.KubernetesEvent) { e.Count = 1200 }, " (1,200 times)"},
		{func(e *console.KubernetesEvent) { e.Count, e.First = 2, at.Add(-time.Hour) }, " (2 times since 13:05:00)"},
		{func(e *console.KubernetesEvent) {
			e.Count = 2
			e.First = at.Add(-time.Hour)
			e.Late = true
			e.Last = at.Add(-time.Minute)
		}, " (2 times since 13:05:00, last at 14:04:00)"},
		{func(e *console.KubernetesEvent) {
			e.Skipped = 2
			e.By = "a controller"
		}, " (2 withheld before)  by a controller"},
	} {
		changed := e
		c.change(&changed)
		if diff := cmp.Diff(head+c.want+"\n", showEvent(t, 0, console.Lines, changed)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}
