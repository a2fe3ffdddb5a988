package trace_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	spans "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/trace"
)

// attributes returns the attributes as a map, with numbers written out.
func attributes(list []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range list {
		if s, ok := a.Value.Value.(*common.AnyValue_StringValue); ok {
			m[a.Key] = s.StringValue
		} else {
			m[a.Key] = fmt.Sprint(a.Value.GetIntValue())
		}
	}
	return m
}

func TestTraceOfAnEvent(t *testing.T) {
	t.Parallel()
	s := newStand(t, false, nil)
	r := run(t, trace.Config{
		Endpoint:    s.URL + "/",
		Version:     "v1.2.3",
		Instance:    "kubecdc-0",
		Cluster:     "prod-eu-1",
		ClusterUID:  "11e0",
		System:      "nats",
		Destination: "KUBECDC",
	})
	c := capture(48211)
	r.Captured(c)
	all := s.spans(t, spansOfCapture)
	if len(all) != spansOfCapture {
		t.Fatalf("%d spans, want %d", len(all), spansOfCapture)
	}
	type view struct {
		Name, Parent string
		Kind         spans.Span_SpanKind
		From, To     time.Duration
	}
	root := hexOf(c.Trace.Span[:])
	var got []view
	seen := map[string]bool{}
	for _, s := range all {
		if hexOf(s.TraceId) != hexOf(c.Trace.ID[:]) || len(s.SpanId) != 8 || seen[hexOf(s.SpanId)] || s.Status != nil ||
			s.Flags&1 == 0 {
			t.Errorf("span %q: %v", s.Name, s)
		}
		seen[hexOf(s.SpanId)] = true
		since := func(n uint64) time.Duration { return time.Duration(int64(n) - c.Observed.UnixNano()) }
		got = append(got, view{
			s.Name, hexOf(s.ParentSpanId), s.Kind, since(s.StartTimeUnixNano), since(s.EndTimeUnixNano),
		})
	}
	const ms = time.Millisecond
	want := []view{
		{"kubecdc.capture deployments.apps updated", "", spans.Span_SPAN_KIND_PRODUCER, 0, 9 * ms},
		{"queue", root, spans.Span_SPAN_KIND_INTERNAL, 0, 3 * ms},
		{"encode", root, spans.Span_SPAN_KIND_INTERNAL, 3 * ms, 4 * ms},
		{"publish KUBECDC", root, spans.Span_SPAN_KIND_CLIENT, 4 * ms, 8 * ms},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if hexOf(all[0].SpanId) != root {
		t.Errorf("the root is %x, and traceparent says %s", all[0].SpanId, root)
	}
	if d := cmp.Diff(map[string]string{
		"cloudevents.event_id":            c.ID,
		"cloudevents.event_source":        c.Source,
		"cloudevents.event_spec_version":  "1.0",
		"cloudevents.event_type":          c.Type,
		"messaging.system":                "nats",
		"messaging.destination.name":      "KUBECDC",
		"messaging.message.id":            c.ID,
		"k8s.namespace.name":              "shop",
		"kubecdc.resource":                "deployments.apps",
		"kubecdc.op":                      "u",
		"kubecdc.object.kind":             "Deployment",
		"kubecdc.object.name":             "web",
		"kubecdc.object.uid":              "7c0e",
		"kubecdc.object.resource_version": "48211",
	}, attributes(all[0].Attributes)); d != "" {
		t.Error(d)
	}
	published := all[3]
	if d := cmp.Diff(map[string]string{
		"messaging.operation.name":        "publish",
		"messaging.operation.type":        "send",
		"messaging.system":                "nats",
		"messaging.destination.name":      "KUBECDC",
		"messaging.message.id":            c.ID,
		"messaging.message.envelope.size": "1234",
		"kubecdc.attempts.failed":         "40",
	}, attributes(published.Attributes)); d != "" {
		t.Error(d)
	}
	if e := published.Events; len(e) != 1 || attributes(e[0].Attributes)["error.type"] != "stream_full" ||
		published.DroppedEventsCount != 39 {
		t.Errorf("attempts: %v, %d more", e, published.DroppedEventsCount)
	}
	if d := cmp.Diff(map[string]string{
		"service.name":        "kubecdc",
		"service.version":     "v1.2.3",
		"service.instance.id": "kubecdc-0",
		"k8s.cluster.name":    "prod-eu-1",
		"k8s.cluster.uid":     "11e0",
	}, attributes(s.taken[0].ResourceSpans[0].Resource.Attributes)); d != "" {
		t.Error(d)
	}
	r.stop()
	if n := r.metric(t, "kubecdc_trace_spans_exported_total", ""); n != spansOfCapture {
		t.Errorf("%v spans are counted", n)
	}
}

func TestErrorsShowInSpans(t *testing.T) {
	t.Parallel()
	s := newStand(t, false, nil)
	r := run(t, trace.Config{Endpoint: s.URL})
	c := capture(1)
	c.Err, c.Stages[1].Err = publish.ErrClosed, publish.ErrClosed
	r.Captured(c)
	all := s.spans(t, spansOfCapture)
	for i, want := range []spans.Status_StatusCode{
		spans.Status_STATUS_CODE_ERROR, 0, 0, spans.Status_STATUS_CODE_ERROR,
	} {
		if got := all[i].GetStatus().GetCode(); got != want {
			t.Errorf("span %s has status %v, want %v", all[i].Name, got, want)
		}
	}
}

const secret = "s3cr3t-t0k3n-of-the-collector"

func TestCollectorWithTLSAndCredentials(t *testing.T) {
	t.Parallel()
	s := newStand(t, true, nil)
	headers := file(t, "headers", "Authorization: Bearer "+secret+"\n")
	r := run(t, trace.Config{Endpoint: s.URL, HeadersFile: headers, TLS: &publish.TLS{CAFile: s.caFile(t)}})
	r.Captured(capture(1))
	s.spans(t, spansOfCapture)
	if got := s.requests[0].Header.Get("Authorization"); got != "Bearer "+secret {
		t.Errorf("Authorization: %q", got)
	}

	// Without the authority, the collector is not trusted.
	stranger := run(t, trace.Config{Endpoint: s.URL, HeadersFile: headers})
	stranger.Captured(capture(2))
	stranger.stop()
	if n := stranger.dropped(t, "shutdown"); n != spansOfCapture ||
		!strings.Contains(stranger.log.String(), "certificate") {
		t.Errorf("%v spans were dropped, log: %s", n, &stranger.log)
	}
}

// A collector may repeat a request in its answer.
func TestNoCredentialInTheLog(t *testing.T) {
	s := newStand(t, false, func(_ int, w http.ResponseWriter) bool {
		http.Error(w, "who is Bearer "+secret+"?", http.StatusUnauthorized)
		return false
	})
	r := run(t, trace.Config{Endpoint: s.URL, HeadersFile: file(t, "headers", "Authorization: Bearer "+secret+"\n")})
	r.Captured(capture(1))
	r.stop()
	if n := r.dropped(t, "refused"); n != spansOfCapture {
		t.Errorf("%v spans count as refused", n)
	}
	if log := r.log.String(); strings.Contains(log, secret) || !strings.Contains(log, "401") {
		t.Errorf("log: %s", log)
	}
	_, err := trace.New(trace.Config{Endpoint: s.URL, HeadersFile: file(t, "headers", secret)}, nil, nil)
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a broken file of headers: %v", err)
	}
}

func TestBusyCollectorIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := newStand(t, false, func(n int, w http.ResponseWriter) bool {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return false
		}
		return true
	})
	r := run(t, trace.Config{Endpoint: s.URL})
	r.Captured(capture(1))
	s.spans(t, spansOfCapture)
	r.stop()
	if n := r.metric(t, "kubecdc_trace_spans_exported_total", ""); n != spansOfCapture || len(s.requests) != 2 {
		t.Errorf("%v spans were taken, with %d requests", n, len(s.requests))
	}
}

func TestCollectorThatTakesAPart(t *testing.T) {
	t.Parallel()
	s := newStand(t, false, func(_ int, w http.ResponseWriter) bool {
		answer, err := proto.Marshal(&collector.ExportTraceServiceResponse{
			PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 3, ErrorMessage: secret},
		})
		if err != nil {
			return false
		}
		_, err = w.Write(answer)
		return err == nil
	})
	r := run(t, trace.Config{Endpoint: s.URL})
	r.Captured(capture(1))
	s.spans(t, spansOfCapture)
	r.stop()
	if got, lost := r.metric(t, "kubecdc_trace_spans_exported_total", ""), r.dropped(t, "refused"); got != 1 ||
		lost != 3 {
		t.Errorf("%v were taken and %v refused, want 1 and 3", got, lost)
	}
}

// Captures that are queued when the agent ends are sent.
func TestFlushAtTheEnd(t *testing.T) {
	s := newStand(t, false, nil)
	r := newTracer(t, trace.Config{Endpoint: s.URL})
	const n = 600 // three requests
	for rv := range uint64(n) {
		r.Captured(capture(rv + 1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got := len(s.spans(t, n*spansOfCapture)); got != n*spansOfCapture {
		t.Errorf("%d spans, want %d", got, n*spansOfCapture)
	}
}

// A collector that accepts connections and never answers does not block captures. Excess captures
// are dropped and counted, and the tracer ends soon.
func TestDeadCollectorHoldsNobody(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newTracer(t, trace.Config{Endpoint: "http://" + l.Addr().String()})
	r.SetFlush(trace.FlushTimeout)
	r.start(t)
	const n = 5000
	for rv := range uint64(n) {
		r.Captured(capture(rv)) // returns, or the test never ends
	}
	full := r.dropped(t, "queue_full")
	// 2,048 wait, and up to two batches have left the queue.
	if most := float64((n - 2048) * spansOfCapture); full > most || full < most-2*256*spansOfCapture {
		t.Errorf("%v spans were dropped, the queue is 2,048 events long", full)
	}
	begin := time.Now()
	r.stop()
	// Without a time limit of its own, stop would wait for ten seconds for each of the nine
	// batches.
	if took := time.Since(begin); took > 45*time.Second {
		t.Errorf("the end took %s", took)
	}
	if got := full + r.dropped(t, "shutdown"); got != n*spansOfCapture {
		t.Errorf("%v of %d spans are accounted for", got, n*spansOfCapture)
	}
	if !strings.Contains(r.log.String(), "spans are dropped") {
		t.Errorf("log: %s", &r.log)
	}
}

func TestWrongConfigurations(t *testing.T) {
	for endpoint, want := range map[string]string{
		"collector:4318":             "has no scheme, write https:// before it",
		"http://me:pass@127.0.0.1:1": "has a user or a password in it",
		"http://":                    "has no host",
	} {
		_, err := trace.New(trace.Config{Endpoint: endpoint}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
	}
}

func TestMetricsAreWellNamed(t *testing.T) {
	r := newTracer(t, trace.Config{Endpoint: "http://127.0.0.1:1"})
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 || len(families) != 2 {
		t.Errorf("%d families, error %v, problems %v", len(families), err, problems)
	}
}

// There are few names of spans: the name of an object is an attribute.
func TestSpanNamesHaveNoObject(t *testing.T) {
	t.Parallel()
	s := newStand(t, false, nil)
	r := run(t, trace.Config{Endpoint: s.URL})
	r.Captured(capture(1))
	s.spans(t, spansOfCapture)
	raw, err := proto.Marshal(s.taken[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range s.taken[0].ResourceSpans[0].ScopeSpans[0].Spans {
		if strings.Contains(s.Name, "web") || strings.Contains(s.Name, "shop") {
			t.Errorf("the name of span %q has that of an object", s.Name)
		}
	}
	if !bytes.Contains(raw, []byte("web")) {
		t.Error("the object's name is nowhere")
	}
}
