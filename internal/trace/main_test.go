package trace_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/trace"
)

func TestMain(m *testing.M) {
	// Most tests wait. Run more of them at a time than there are processors, unless the command
	// line overrides it.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// stand is a collector. It stores the requests that it accepts.
type stand struct {
	*httptest.Server
	// answers the n-th request, and reports whether the spans are accepted; nil: accepts all
	answer func(n int, w http.ResponseWriter) bool

	mu       sync.Mutex
	requests []*http.Request
	taken    []*collector.ExportTraceServiceRequest
	changed  chan struct{} // room for one
}

func newStand(t *testing.T, secured bool, answer func(n int, w http.ResponseWriter) bool) *stand {
	t.Helper()
	s := &stand{answer: answer, changed: make(chan struct{}, 1)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if secured {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *stand) serve(w http.ResponseWriter, r *http.Request) {
	var req collector.ExportTraceServiceRequest
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	raw, err := io.ReadAll(z)
	if err == nil {
		err = proto.Unmarshal(raw, &req)
	}
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" ||
		r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "no OTLP", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, r)
	n := len(s.requests)
	s.mu.Unlock()
	if s.answer == nil || s.answer(n, w) {
		s.mu.Lock()
		s.taken = append(s.taken, &req)
		s.mu.Unlock()
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// spans returns all accepted spans, as soon as there are n.
func (s *stand) spans(t *testing.T, n int) []*spans.Span {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		var all []*spans.Span
		for _, r := range s.taken {
			for _, rs := range r.ResourceSpans {
				for _, ss := range rs.ScopeSpans {
					all = append(all, ss.Spans...)
				}
			}
		}
		s.mu.Unlock()
		if len(all) >= n {
			return all
		}
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("%d spans have come, want %d", len(all), n)
		}
	}
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// running is a tracer that runs until stop.
type running struct {
	*trace.Tracer
	log  buffer
	reg  *prometheus.Registry
	stop func()
}

func run(t *testing.T, cfg trace.Config) *running {
	t.Helper()
	r := newTracer(t, cfg)
	r.start(t)
	return r
}

func newTracer(t *testing.T, cfg trace.Config) *running {
	t.Helper()
	r := &running{reg: prometheus.NewPedanticRegistry()}
	var err error
	r.Tracer, err = trace.New(cfg, slog.New(slog.NewTextHandler(&r.log, nil)), r.reg)
	if err != nil {
		t.Fatal(err)
	}
	r.SetFlush(time.Minute)
	return r
}

func (r *running) metric(t *testing.T, name, reason string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if reason == "" || m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %s", name, reason)
	return 0
}

func (r *running) dropped(t *testing.T, reason string) float64 {
	t.Helper()
	return r.metric(t, "kubecdc_trace_spans_dropped_total", reason)
}

var deployments = &object.Resource{
	Group:      "apps",
	Version:    "v1",
	Name:       "deployments",
	Kind:       "Deployment",
	Namespaced: true,
}

// capture returns the capture of one event, with three spans and one for the failed attempt.
func capture(rv uint64) *publish.Capture {
	at := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	c := &publish.Capture{
		Trace: encode.Trace{ID: [16]byte{1, 2, 3, 15: byte(rv)}, Span: [8]byte{4, 5, 6, 7: byte(rv)}},
		ID:    "deployments.apps/7c0e/48211", Source: "/kubernetes/prod-eu-1", Type: "dev.kubecdc.object.updated",
		Op: object.Updated, Ref: object.NewRef(deployments, "shop", "web", "7c0e"), Version: rv,
		Observed: at, Taken: at.Add(3 * time.Millisecond), End: at.Add(9 * time.Millisecond),
	}
	c.Stages = []publish.Stage{
		{Name: publish.StageEncode, Start: at.Add(3 * time.Millisecond), End: at.Add(4 * time.Millisecond), Bytes: 1234},
		{
			Name:     publish.StagePublish,
			Start:    at.Add(4 * time.Millisecond),
			End:      at.Add(8 * time.Millisecond),
			Bytes:    1234,
			Failed:   40,
			Failures: []publish.Failure{{At: at.Add(5 * time.Millisecond), Reason: "stream_full"}},
		},
	}
	return c
}

// spansOfCapture is the number of spans of a capture.
const spansOfCapture = 4

// caFile writes the certificate of s to a file, and returns its path.
func (s *stand) caFile(t *testing.T) string {
	t.Helper()
	return file(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }
func (r *running) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(r.stop)
}
