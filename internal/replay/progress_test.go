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

	"github.com/kubecdc/kubecdc/internal/replay"
	"github.com/kubecdc/kubecdc/internal/terminal"
	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestProgressWithoutATerminal(t *testing.T) {
	begin := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	var record strings.Builder
	line := func(at time.Duration, id, kind, data string) {
		fmt.Fprintf(&record, `{"specversion":"1.0","id":%q,"source":"/kubernetes/c","type":%q,"time":%q,"cluster":"c","apiversion":"v1","resource":"pods","scope":"pods","data":%s}`+"\n",
			id, consume.TypePrefix+kind, begin.Add(at).Format(time.RFC3339Nano), data)
	}
	line(0, "pods/s/started", "snapshot.started", `{"snapshot":"s","resourceVersion":"1","objects":0}`)
	line(0, "pods/s/completed", "snapshot.completed", `{"snapshot":"s","resourceVersion":"1","objects":0}`)
	for _, at := range []time.Duration{10 * time.Second, 15 * time.Second, 33 * time.Second} {
		line(at, "pods/progress/"+at.String(), "progress", `{"resourceVersion":"2"}`)
	}
	synctest.Test(t, func(t *testing.T) {
		var shown bytes.Buffer
		o := replay.Options{
			From: timeline.At(begin), To: timeline.At(begin.Add(time.Minute)), Speed: 1,
			Stderr: terminal.Detect(&shown, func(string) string { return "" }),
		}
		if err := once(t.Context(), t.TempDir()+"/position", record.String(), o, io.Discard); err != nil {
			t.Fatal(err)
		}
		at := begin.Add(15 * time.Second).Local().Format(time.RFC3339)
		want := "replay: 4 events, 0 a second, at " + at + ", 25%, 30s left\nreplay: 4 events, 0 a second, at " + at + ", 25%, 1m0s left\n"
		if diff := cmp.Diff(want, shown.String()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
