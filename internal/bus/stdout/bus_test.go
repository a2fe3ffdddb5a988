package stdout_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

// run runs a bus that writes to w, until stop is called or the test ends.
func run(t *testing.T, w io.Writer) (_ *stdout.Bus, stop func()) {
	t.Helper()
	b := stdout.New(w, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return b, stop
}

// once publishes an event, and returns how it ends.
func once(b *stdout.Bus, ev *encode.Event) <-chan error {
	done := make(chan error, 2) // a second one would be an error of the bus, and shows
	b.Publish(publish.NewEvent(ev, func(err error) { done <- err }, nil))
	return done
}

func TestWritesJSONLines(t *testing.T) {
	var out bytes.Buffer
	b, _ := run(t, &out)
	for _, body := range []string{`{"id":"1"}`, "{\n \"id\": \"2\\n\"\n}"} {
		if err := <-once(b, bustest.Event("web-1", 1, body)); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff("{\"id\":\"1\"}\n{\"id\":\"2\\n\"}\n", out.String()); d != "" {
		t.Error(d)
	}
	if err := <-once(b, bustest.Event("web-1", 1, "{\n")); !errors.Is(err, publish.ErrRefused) {
		t.Errorf("no JSON: %v", err)
	}
}

// The progress of the agent is a line like any event.
func TestWritesProgress(t *testing.T) {
	var out bytes.Buffer
	b, _ := run(t, &out)
	ev := bustest.EncodeProgress(t, encode.Structured, "0-1",
		bustest.Progress(7, bustest.ScopeAt(bustest.Pods, "", 5)))
	want := string(ev.Body) + "\n"
	if err := <-once(b, ev); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

func TestLinesDoNotMix(t *testing.T) {
	var out bytes.Buffer
	b, stop := run(t, &out)
	line := strings.Repeat("x", 5000)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				if err := <-once(b, bustest.Event("web-1", 1, line)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stop()
	if got := strings.Count(out.String(), line+"\n"); got != 320 {
		t.Errorf("got %d whole lines, want 320", got)
	}
	if err := <-once(b, bustest.Event("web-1", 1, line)); !errors.Is(err, publish.ErrClosed) || b.Ready() == nil {
		t.Errorf("after Run: %v", err)
	}
}

// A pipe that nobody reads holds up neither the end of Run nor that of the events. A line that was
// begun is written whole, and no other follows it.
func TestPipeThatNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	b, stop := run(t, w)
	line := strings.Repeat("x", 1<<20) // more than a pipe holds
	all := []<-chan error{once(b, bustest.Event("web-1", 1, line)), once(b, bustest.Event("web-2", 1, line))}
	in := make([]byte, 1)
	if _, err := io.ReadFull(r, in); err != nil { // the first has begun
		t.Fatal(err)
	}
	stop()
	for i, done := range all {
		if err := <-done; !errors.Is(err, publish.ErrClosed) || len(done) > 0 {
			t.Errorf("event %d: got %v, and %d more", i, err, len(done))
		}
	}
	rest := make([]byte, len(line))
	if _, err := io.ReadFull(r, rest); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	more, err := io.ReadAll(r)
	if err != nil || len(more) > 0 {
		t.Errorf("%d bytes follow the line, error %v", len(more), err)
	}
	if want := line + "\n"; string(in)+string(rest) != want {
		t.Error("the line is not whole")
	}
}

// An error of the stream is final: half a line may be there.
func TestClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer func() { _ = w.Close() }()
	b, _ := run(t, w)
	for range 2 {
		if err := <-once(b, bustest.Event("web-1", 1, "{}")); !errors.Is(err, syscall.EPIPE) ||
			errors.Is(err, publish.ErrRefused) {
			t.Errorf("got %v, want EPIPE", err)
		}
	}
}

// A killed run, or a full disk, leaves part of a line at the end of a file. The next run appends to
// it, and its first event can be read.
func TestFirstLineAfterAPartialOne(t *testing.T) {
	for _, c := range []struct{ name, before, want string }{
		{"partial line", `{"id":"1`, "{\"id\":\"1\n{\"id\":\"2\"}\n{\"id\":\"2\"}\n"},
		{"whole line", "{}\n", "{}\n{\"id\":\"2\"}\n{\"id\":\"2\"}\n"},
		{"empty file", "", "{\"id\":\"2\"}\n{\"id\":\"2\"}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events.jsonl")
			if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0) // as a shell opens it for >>
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			b, _ := run(t, f)
			for range 2 {
				if err := <-once(b, bustest.Event("web-1", 1, `{"id":"2"}`)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, string(got)); d != "" {
				t.Error(d)
			}
		})
	}
}
