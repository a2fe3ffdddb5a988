package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/console/tail"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// terminalOf collects the output of a tail, and signals each change to waitFor.
type terminalOf struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newTerminal() *terminalOf { return &terminalOf{changed: make(chan struct{}, 1)} }

func (o *terminalOf) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}()
	return o.text.Write(p)
}

func (o *terminalOf) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// waitFor waits until the output satisfies f.
func (o *terminalOf) waitFor(t *testing.T, what string, f func(string) bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !f(o.String()) {
		select {
		case <-o.changed:
		case <-deadline:
			t.Fatalf("waited for %s, got:\n%s", what, o)
		}
	}
}

func podRecord(n int) []byte {
	return fmt.Appendf(nil,
		`{"specversion":"1.0","id":"pods/u/%d","source":"/kubernetes/c","type":"dev.kubecdc.object.updated","subject":"/api/v1/pods",`+
			`"time":"2026-11-20T15:00:00Z","cluster":"c","apiversion":"v1","kind":"Pod","resource":"pods","namespace":"shop","name":"web-%d","uid":"u","op":"u",`+
			`"resourceversion":"%d","data":{"op":"u","resourceVersion":"%d","before":{"spec":{"n":0}},"after":{"spec":{"n":%d}}}}`,
		n, n, n+1, n+1, n)
}

// publishAll publishes the records numbered from through to.
func publishAll(t *testing.T, url string, from, to int) {
	t.Helper()
	js := connect(t, url)
	defer js.Conn().Close()
	if _, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{
		"kubecdc.>",
	}}); err != nil {
		t.Fatal(err)
	}
	for n := from; n <= to; n++ {
		m := &nats.Msg{Subject: "kubecdc.c.object.core.pods.shop.web", Header: nats.Header{}, Data: podRecord(n)}
		m.Header.Set("content-type", "application/cloudevents+json")
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

func names(from, to int) string {
	var b strings.Builder
	for n := from; n <= to; n++ {
		fmt.Fprintf(&b, "web-%d ", n)
	}
	return b.String()
}

// shownNames returns the names of the objects in the output.
func shownNames(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if _, rest, ok := strings.Cut(line, "shop/"); ok {
			name, _, _ := strings.Cut(rest, " ")
			b.WriteString(name + " ")
		}
	}
	return b.String()
}

func TestTailFollowsAStreamAcrossARestartOfItsServer(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	s := startServer(t, dir, -1)
	port := s.Addr().(*net.TCPAddr).Port
	url := s.ClientURL()
	publishAll(t, url, 1, 3)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, complaints := newTerminal(), newTerminal()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"tail", "pods", "--bus", url, "--since", "all"}, out, complaints) }()
	shows := func(want string) func(string) bool {
		return func(got string) bool { return shownNames(got) == want }
	}
	out.waitFor(t, "what was there", shows(names(1, 3)))
	publishAll(t, url, 4, 4)
	out.waitFor(t, "what comes live", shows(names(1, 4)))

	s.Shutdown()
	s.WaitForShutdown()
	s = startServer(t, dir, port)
	publishAll(t, s.ClientURL(), 5, 6)
	out.waitFor(t, "what comes after the restart", shows(names(1, 6)))

	stop()
	select {
	case code := <-ended:
		if code != exitOK {
			t.Errorf("exit code %d: %s", code, complaints)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Ctrl-C does not end it")
	}
	// tail reports once that the bus is away, with its address, and once that reading resumes.
	said := strings.Split(strings.TrimSpace(complaints.String()), "\n")
	for k, line := range said {
		if want := []string{"stream KUBECDC at " + url, "reading resumes"}[k%2]; !strings.Contains(line, want) ||
			len(said)%2 != 0 {
			t.Errorf("said about the restart, want %s in turn:\n%s", want, complaints)
		}
	}
	if got := shownNames(out.String()); got != names(1, 6) {
		t.Errorf("got %s", got)
	}
	s.Shutdown()
	s.WaitForShutdown()
}

func TestTailBeginsWhereItIsTold(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	publishAll(t, s.ClientURL(), 1, 2)
	between := time.Now()
	publishAll(t, s.ClientURL(), 3, 4)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--no-follow"}, names(1, 4)},
		{[]string{"--no-follow", "--since", "all", "--limit", "3"}, names(1, 3)},
		{[]string{"--no-follow", "--since", between.Format(time.RFC3339Nano)}, names(3, 4)},
		{[]string{"--no-follow", "--since", "1h"}, names(1, 4)},
		{[]string{"--no-follow", "--since", "7d", "pods/web-[23]"}, names(2, 3)},
		{[]string{"--limit", "2", "--since", "all"}, names(1, 2)},
	} {
		var out, complaints bytes.Buffer
		code := run(t.Context(), append([]string{"tail", "--bus", s.ClientURL()}, c.args...), &out, &complaints)
		if code != exitOK || complaints.Len() > 0 {
			t.Errorf("%q: exit code %d: %s", c.args, code, complaints.String())
		}
		if got := shownNames(out.String()); got != c.want {
			t.Errorf("%q: got %s, want %s", c.args, got, c.want)
		}
	}
}

func TestTailSaysWhatIsWrongWithABus(t *testing.T) {
	none := startServer(t, "", -1)
	empty := startServer(t, t.TempDir(), -1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := listener.Addr().String()
	listener.Close()
	for _, c := range []struct{ name, bus, want string }{
		{"nobody listens", "nats://me:hunter2@" + dead, "check that a NATS server listens there"},
		{"no JetStream", none.ClientURL(), "has no JetStream"},
		{"no stream", empty.ClientURL(), "no stream KUBECDC at " + empty.ClientURL()},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, complaints bytes.Buffer
			if code := run(t.Context(), []string{"tail", "--bus", c.bus}, &out, &complaints); code != exitFailed {
				t.Errorf("exit code %d", code)
			}
			if !strings.Contains(complaints.String(), c.want) || strings.Contains(complaints.String(), "hunter2") {
				t.Errorf("got %s", complaints.String())
			}
		})
	}
}

// tail reports and skips a record that it cannot decode, and exits with an error at the end.
func TestTailPassesWhatItCannotRead(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	publishAll(t, s.ClientURL(), 1, 1)
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Request("kubecdc.foreign", []byte("hello"), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	publishAll(t, s.ClientURL(), 2, 2)
	var out, complaints bytes.Buffer
	code := run(t.Context(), []string{"tail", "--bus", s.ClientURL(), "--no-follow"}, &out, &complaints)
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if got := shownNames(out.String()); got != names(1, 2) {
		t.Errorf("got %s", got)
	}
	for _, want := range []string{"record 2 (kubecdc.foreign)", "are not shown: 1"} {
		if !strings.Contains(complaints.String(), want) {
			t.Errorf("%q is not in: %s", want, complaints.String())
		}
	}
}

// closedPipe fails after some lines, like a pipe to "head -1".
type closedPipe struct{ lines int }

func (p *closedPipe) Write(b []byte) (int, error) {
	p.lines--
	if p.lines < 0 {
		return 0, &os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}
	}
	return len(b), nil
}

func TestTailEndsQuietlyWhenNobodyReads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events.jsonl")
	record := append(bytes.TrimSpace(podRecord(1)), '\n')
	if err := os.WriteFile(file, bytes.Repeat(record, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"wide", "json", "yaml"} {
		var complaints bytes.Buffer
		if code := run(t.Context(), []string{"tail", "--bus", "file:" + file, "-o", format}, &closedPipe{1},
			&complaints); code != exitOK || complaints.Len() > 0 {
			t.Errorf("-o %s: exit code %d: %s", format, code, complaints.String())
		}
	}
}

// tail shows each event when it arrives, without waiting for a full buffer.
func TestTailShowsWhatHasCome(t *testing.T) {
	read, write := io.Pipe()
	src := fromfile.NewLines("pipe", read, consume.Query{})
	ctx, stop := context.WithCancel(t.Context())
	out := newTerminal()
	ended := make(chan error, 1)
	go func() { ended <- newTailer(&tailFlags{}, out, io.Discard, t).Run(ctx, src, true) }()
	for n := range 3 {
		if _, err := write.Write(append(podRecord(n), '\n')); err != nil {
			t.Fatal(err)
		}
		out.waitFor(t, "an event", func(got string) bool { return shownNames(got) == names(0, n) })
	}
	stop() // while a read blocks
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for its input to end")
	}
	write.Close()
}

func TestSinceIsATimeOrHowLongAgo(t *testing.T) {
	now := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC).Local()
	for since, want := range map[string]time.Time{
		"90s":                         now.Add(-90 * time.Second),
		"1h30m":                       now.Add(-90 * time.Minute),
		"7d":                          now.AddDate(0, 0, -7),
		"1.5d":                        now.Add(-36 * time.Hour),
		"2026-11-20T14:00:00Z":        now.Add(-time.Hour),
		"2026-11-20T15:00:00.5+01:00": now.Add(-time.Hour + time.Second/2),
		"2026-11-19":                  time.Date(2026, 11, 19, 0, 0, 0, 0, time.Local),
		"2026-11-19 14:05":            time.Date(2026, 11, 19, 14, 5, 0, 0, time.Local),
		"yesterday":                   time.Date(now.Year(), now.Month(), now.Day()-1, 0, 0, 0, 0, time.Local),
		"all":                         {},
	} {
		at, all, err := (&tailFlags{since: since}).start(now)
		if err != nil || !at.Equal(want) || all != (since == "all") {
			t.Errorf("%s: got %v, %t, %v", since, at, all, err)
		}
	}
	for _, since := range []string{"tomorrow", "1x", "-1h", "d", "NaNd", "1e300d", "2026-13-01"} {
		if _, _, err := (&tailFlags{since: since}).start(now); err == nil ||
			!strings.Contains(err.Error(), "want a time") {
			t.Errorf("%s: got %v", since, err)
		}
	}
}

// A permanent error of the source ends the tail, which returns it without printing it.
func TestTailEndsWithItsSource(t *testing.T) {
	failure := errors.New("the disk is gone")
	src := fromfile.NewLines("events.jsonl",
		io.MultiReader(bytes.NewReader(append(podRecord(1), '\n')), failing{failure}), consume.Query{})
	var out, complaints bytes.Buffer
	err := newTailer(&tailFlags{}, &out, &complaints, t).Run(t.Context(), src, true)
	if !errors.Is(err, failure) || shownNames(out.String()) != names(1, 1) || complaints.Len() > 0 {
		t.Errorf("got %v, %s, %s", err, out.String(), complaints.String())
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func newTailer(f *tailFlags, out, complaints io.Writer, t testing.TB) *tail.Tailer {
	t.Helper()
	tl, err := f.tailer(out, complaints)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// largeRecord returns a record of 12 KB: an update of the status of a pod of 5.3 KB.
func largeRecord(tb testing.TB) []byte {
	tb.Helper()
	pod := func(name string) map[string]any {
		raw, err := os.ReadFile("../../internal/object/patch/testdata/objects/" + name)
		if err != nil {
			tb.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil {
			tb.Fatal(err)
		}
		v["spec"].(map[string]any)["padding"] = map[string]string{"env": strings.Repeat("value ", 230)}
		return v
	}
	before, after := pod("pod-unready.before.json"), pod("pod-unready.after.json")
	raw, err := json.Marshal(map[string]any{
		"specversion":     "1.0",
		"id":              "pods/u/1",
		"source":          "/kubernetes/c",
		"type":            "dev.kubecdc.object.updated",
		"time":            "2026-11-20T15:00:00Z",
		"apiversion":      "v1",
		"kind":            "Pod",
		"resource":        "pods",
		"namespace":       "shop",
		"name":            "web-0",
		"uid":             "u",
		"op":              "u",
		"resourceversion": "1",
		"data": map[string]any{
			"op": "u", "resourceVersion": "1", "before": before, "after": after,
			"changedBy": []any{map[string]string{
				"manager":   "kubelet",
				"operation": "Update",
				"time":      "2026-11-20T15:00:00Z",
			}},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return append(raw, '\n')
}

// repeated is a file that repeats one line.
type repeated struct {
	line []byte
	left int
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && r.left > 0 {
		k := copy(p[n:], r.line[r.at:])
		n += k
		r.at += k
		if r.at == len(r.line) {
			r.at = 0
			r.left--
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// BenchmarkTail measures the whole path from a file of 12 KB records to the terminal.
func BenchmarkTail(b *testing.B) {
	line := largeRecord(b)
	for _, view := range []struct {
		name string
		f    tailFlags
	}{{"lines", tailFlags{}}, {"diff", tailFlags{diff: true}}, {"json", tailFlags{output: output{
		Format: printer.Format{Name: "json"},
	}}}, {"yaml", tailFlags{output: output{Format: printer.Format{Name: "yaml"}}}}} {
		b.Run(view.name, func(b *testing.B) {
			b.Setenv("CLICOLOR_FORCE", "1")
			b.Setenv("COLUMNS", "160")
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			t := newTailer(&view.f, io.Discard, io.Discard, b)
			if err := t.Run(b.Context(), fromfile.NewLines("file", &repeated{line: line, left: b.N}, consume.Query{}),
				true); err != nil {
				b.Fatal(err)
			}
			if t.Shown != b.N {
				b.Fatalf("%d of %d shown", t.Shown, b.N)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkTailJetStream measures the whole path from a stream of 12 KB records, in a server of
// this process, to the terminal.
func BenchmarkTailJetStream(b *testing.B) {
	s, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      -1,
		JetStream: true,
		StoreDir:  b.TempDir(),
		NoLog:     true,
		NoSigs:    true,
	})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(10 * time.Second) {
		b.Fatal("the server does not come up")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		b.Fatal(err)
	}
	line := bytes.TrimSpace(largeRecord(b))
	streams := 0
	fill := func(b *testing.B, n int) string {
		// Use a new stream each time: a stream that is deleted and recreated at once may have the
		// old records.
		streams++
		name := fmt.Sprintf("RUN%d", streams)
		if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{
			name + ".>",
		}}); err != nil {
			b.Fatal(err)
		}
		for k := range n {
			m := &nats.Msg{Subject: name + ".object.core.pods.shop.web", Header: nats.Header{}, Data: line}
			m.Header.Set("content-type", "application/cloudevents+json")
			if _, err := js.PublishMsgAsync(m); err != nil {
				b.Fatal(k, err)
			}
			if k%1000 == 999 || k == n-1 {
				<-js.PublishAsyncComplete()
			}
		}
		return name
	}
	for _, view := range []struct {
		name string
		f    tailFlags
	}{{"lines", tailFlags{}}, {"diff", tailFlags{diff: true}}, {"json", tailFlags{output: output{
		Format: printer.Format{Name: "json"},
	}}}} {
		b.Run(view.name, func(b *testing.B) {
			b.Setenv("CLICOLOR_FORCE", "1")
			b.Setenv("COLUMNS", "160")
			b.SetBytes(int64(len(line)))
			f := view.f
			f.Bus = s.ClientURL()
			f.access.Flags = map[string]string{"stream": fill(b, b.N)}
			f.noFollow = true
			t := newTailer(&f, io.Discard, io.Discard, b)
			b.ResetTimer()
			src, blocks, err := f.open(b.Context(), &console.Filter{}, nil, io.Discard)
			if err != nil {
				b.Fatal(err)
			}
			if err := t.Run(b.Context(), src, blocks); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if t.Shown != b.N {
				b.Fatalf("%d of %d shown", t.Shown, b.N)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
