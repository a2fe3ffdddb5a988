package replay_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hinshun/vt10x"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/relay/replay"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// progressRecord returns a record of three events of progress in the minute after 14:00, and a
// replay of this minute at the speed of the record.
func progressRecord(stderr *terminal.Output) (record string, o replay.Options) {
	begin := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	var lines strings.Builder
	line := func(at time.Duration, id, kind, data string) {
		fmt.Fprintf(&lines,
			`{"specversion":"1.0","id":%q,"source":"/kubernetes/c","type":%q,"time":%q,"cluster":"c","apiversion":"v1","resource":"pods","scope":"pods","data":%s}`+
				"\n",
			id, consume.TypePrefix+kind, begin.Add(at).Format(time.RFC3339Nano), data)
	}
	line(0, "pods/s/started", "snapshot.started", `{"snapshot":"s","resourceVersion":"1","objects":0}`)
	line(0, "pods/s/completed", "snapshot.completed", `{"snapshot":"s","resourceVersion":"1","objects":0}`)
	for _, at := range []time.Duration{10 * time.Second, 15 * time.Second, 33 * time.Second} {
		line(at, "pods/started/"+at.String(), "scope.started", `{"resourceVersion":"2"}`)
	}
	return lines.String(), replay.Options{
		From:   timeline.At(begin),
		To:     timeline.At(begin.Add(time.Minute)),
		Speed:  1,
		Stderr: stderr,
	}
}

func TestProgressWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shown bytes.Buffer
		record, o := progressRecord(terminal.Detect(&shown, func(string) string { return "" }))
		if err := once(t.Context(), t.TempDir()+"/position", record, o, io.Discard); err != nil {
			t.Fatal(err)
		}
		at := o.From.Time().Add(15 * time.Second).Local().Format(time.RFC3339)
		want := "replay: 4 events, 0 a second, at " + at + ", 25%, 30s left\nreplay: 4 events, 0 a second, at " + at +
			", 25%, 1m0s left\n"
		if diff := cmp.Diff(want, shown.String()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// screen is an emulated terminal.
type screen struct{ vt10x.Terminal }

// Write makes a carriage return and a line feed of a line feed, as a tty does.
func (s screen) Write(p []byte) (int, error) {
	_, err := s.Terminal.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n")))
	return len(p), err
}

// text returns the text of the screen, without the empty ends of lines.
func (s screen) text() string {
	var lines []string
	for line := range strings.Lines(s.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// At a terminal, the progress is one line that is redrawn and finally removed.
func TestProgressAtATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := screen{vt10x.New(vt10x.WithSize(120, 5))}
		record, o := progressRecord(&terminal.Output{Writer: s, Interactive: true, Width: 120, Size: s.Size})
		var replaying errgroup.Group
		replaying.Go(func() error { return once(t.Context(), t.TempDir()+"/position", record, o, io.Discard) })
		at := o.From.Time().Add(15 * time.Second).Local().Format(time.RFC3339)
		<-time.After(12*time.Second + 50*time.Millisecond) // between two drawings
		for _, want := range []string{"36s left · 12s", "1m0s left · 20s"} {
			synctest.Wait()
			want = "replay: 4 events, 0 a second, at " + at + ", 25%, " + want
			if _, got, _ := strings.Cut(s.text(), " "); got != want { // a blank line and the spinner precede it
				t.Errorf("the screen shows %q, want %q", got, want)
			}
			<-time.After(8 * time.Second)
		}
		if err := replaying.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := s.text(); got != "" {
			t.Errorf("the screen shows %q after the replay, want nothing", got)
		}
	})
}
