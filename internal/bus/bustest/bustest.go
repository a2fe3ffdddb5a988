package bustest

import (
	"bytes"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Main runs the tests of a package, and returns the exit code: 1 also if goroutines are left at the
// end.
func Main(m *testing.M) int {
	// Most tests wait. More of them run at a time than there are processors, unless the command
	// line says otherwise.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code := m.Run(); code != 0 {
		return code
	}
	// A server that is shut down while it makes a stream leaves these two of its own behind.
	if err := goleak.Find(
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		// ObjectStore.Put of nats.go starts this goroutine, which then reads
		// js.publisher.connStatusCh. If Put returns first (its context has ended), the channel is
		// nil by then, and the goroutine never ends. The agent does not use PublishAsync itself.
		goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// LogBuffer collects log lines.
type LogBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns the lines so far.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Logger returns a logger that writes everything to l.
func (l *LogBuffer) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Metric returns the value of a counter or gauge whose first label has this value; "": of the first
// of the name.
func Metric(tb testing.TB, reg *prometheus.Registry, name, label string) float64 {
	tb.Helper()
	families, err := reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// Wait waits for a condition that comes true by itself.
func Wait(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

// Pods is the resource of Event's events.
var Pods = &object.Resource{
	Version:    "v1",
	Name:       "pods",
	Kind:       "Pod",
	Namespaced: true,
}

// Event makes the event of version rv of a pod.
func Event(name string, rv int, body string) *encode.Event {
	ref := object.NewRef(Pods, "shop", name, "uid-"+name)
	return &encode.Event{
		Delta:       &object.Delta{Op: object.Updated, Ref: ref, ResourceVersion: uint64(rv)},
		ID:          fmt.Appendf(nil, "pods/%s/%d", ref.UID, rv),
		Source:      []byte("/kubernetes/prod-eu-1"),
		ContentType: "application/cloudevents+json",
		Body:        []byte(body),
	}
}

// Lines returns how many lines of s contain a string.
func Lines(s, containing string) (n int) {
	for line := range strings.Lines(s) {
		if strings.Contains(line, containing) {
			n++
		}
	}
	return n
}

// Discard is a logger that writes nothing.
var Discard = slog.New(slog.DiscardHandler)

// Text returns a text of so many bytes, which does not compress.
func Text(size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(rand.Text())
	}
	return b.String()[:size]
}
