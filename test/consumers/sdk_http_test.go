package consumers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/encode"
)

// TestSDKsHTTP lets a server in each language receive each kind of event, in the three content
// modes.
func TestSDKsHTTP(t *testing.T) {
	t.Parallel()
	for _, sdk := range sdks {
		for _, mode := range []struct {
			name  string
			mode  encode.Mode
			batch int
		}{{"structured", encode.Structured, 1}, {"binary", encode.Binary, 1}, {"batched", encode.Structured, 5}} {
			t.Run(sdk.name+"/"+mode.name, func(t *testing.T) {
				t.Parallel()
				r := startReceiver(t, sdk.argv(t, "receiver"))
				publishHTTP(t, publishhttp.Config{URL: "http://127.0.0.1:" + r.port, Batch: mode.batch}, mode.mode)
				want := wantedByID(t)
				for _, e := range r.stop(t) {
					if mode.mode == encode.Binary && !sdk.decodes {
						percentDecode(t, e.Attributes)
					}
					id := e.Attributes["id"]
					w, ok := want[id]
					if !ok {
						t.Fatalf("nobody has published %q, or it came twice", id)
					}
					compare(t, w, e, sdk.precision)
					delete(want, id)
				}
				for id := range want {
					t.Errorf("%s has not come", id)
				}
			})
		}
	}
}

// receiver is a server in another language. It prints a line for each event before it acknowledges
// it.
type receiver struct {
	port   string
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
}

func startReceiver(t *testing.T, argv []string) *receiver {
	t.Helper()
	r := &receiver{cmd: exec.CommandContext(t.Context(), argv[0], argv[1:]...)}
	r.cmd.Stderr = os.Stderr
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdin, r.stdout = stdin, bufio.NewReader(stdout)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := r.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("the receiver has said no port: %v", err)
	}
	r.port = strings.TrimSpace(line)
	return r
}

// stop ends the receiver and returns the received events.
func (r *receiver) stop(t *testing.T) []event {
	t.Helper()
	_ = r.stdin.Close()
	out, err := io.ReadAll(r.stdout)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var all []event
	for line := range strings.Lines(string(out)) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// publishHTTP sends the deltas as the agent does, all at once, so that batches fill. The receiver's
// output fits into its pipe.
func publishHTTP(t *testing.T, cfg publishhttp.Config, mode encode.Mode) {
	t.Helper()
	b, err := publishhttp.New(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := bustest.Await(b, false)
	go func() { done <- b.Run(ctx) }()
	within, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	var g errgroup.Group
	for _, d := range deltas(t) {
		g.Go(func() error {
			var ev encode.Event
			if err := encode.New(options(mode)).Encode(&ev, d); err != nil {
				return err
			}
			return p.Publish(within, &ev)
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
