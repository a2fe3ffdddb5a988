package e2e_test

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// traces is an OpenTelemetry collector: OTLP over HTTPS, with a credential.
type traces struct {
	*httptest.Server
	caFile, headersFile string

	mu       sync.Mutex
	roots    map[string]string // traceparent of each root span → the event's id
	children map[string]int    // by the traceparent of the parent
	faults   []string
}

func startTraces(t *testing.T) *traces {
	t.Helper()
	dir := t.TempDir()
	c := &traces{
		caFile: filepath.Join(dir, "ca.crt"), headersFile: filepath.Join(dir, "headers"),
		roots: map[string]string{}, children: map[string]int{},
	}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	for path, content := range map[string][]byte{
		c.caFile:      ca,
		c.headersFile: []byte("X-Api-Key: " + world.SecretMark + "\n"),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// config returns the value of tracing, as YAML.
func (c *traces) config(ratio string) string {
	return fmt.Sprintf("{enabled: true, endpoint: %q, sampleRatio: %s, headersFile: %q, tls: {caFile: %q}}", c.URL,
		ratio, c.headersFile, c.caFile)
}

func (c *traces) serve(w http.ResponseWriter, r *http.Request) {
	if err := c.take(r); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.faults = append(c.faults, err.Error())
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (c *traces) take(r *http.Request) error {
	if r.URL.Path != "/v1/traces" || r.Header.Get("X-Api-Key") != world.SecretMark {
		return fmt.Errorf("%s with key %q", r.URL.Path, r.Header.Get("X-Api-Key"))
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	var req collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &req); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				trace := "00-" + hex.EncodeToString(s.TraceId) + "-"
				if len(s.ParentSpanId) > 0 {
					c.children[trace+hex.EncodeToString(s.ParentSpanId)+"-01"]++
					continue
				}
				id := ""
				for _, a := range s.Attributes {
					if a.Key == "cloudevents.event_id" {
						id = a.Value.GetStringValue()
					}
				}
				c.roots[trace+hex.EncodeToString(s.SpanId)+"-01"] = id
			}
		}
	}
	return nil
}

// parents returns the ids of the events on the bus that have a traceparent, by traceparent, and the
// number of object events.
func parents(t *testing.T, b *world.Bus) (byParent map[string]string, objects int) {
	t.Helper()
	conn, err := nats.Connect(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), world.StreamName)
	if err != nil {
		t.Fatal(err)
	}
	byParent = map[string]string{}
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		e, err := consume.FromMessage(m.Header, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if e.Data != nil {
			objects++
		}
		if e.TraceParent != "" {
			byParent[e.TraceParent] = e.ID
		}
	}
	return byParent, objects
}

// TestTracing traces half of the events, in both content modes. Each traceparent on the bus must be
// a span at the collector, and vice versa. Then the collector is stopped, which must not disturb
// the agent.
func TestTracing(t *testing.T) {
	slow(t)
	t.Parallel()
	const objects = 20
	p := world.SharedPlane(t)
	for _, mode := range []string{"structured", "binary"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			namespace := "tracing-" + mode
			p.NewNamespace(t, namespace)
			c, bus := startTraces(t), world.StartBus(t)
			a := world.StartAgent(t, p, world.AgentConfig{
				Bus: bus, Watch: fmt.Sprintf("  - {resources: [configmaps], namespaces: [%s]}", namespace),
				Extra: fmt.Sprintf("event: {mode: %s}\ntracing: %s", mode, c.config("0.5")),
			})
			a.Ready(t)
			p.MakeConfigMaps(t, namespace, "traced", objects)
			p.ChangeConfigMaps(t, namespace, "traced", objects)
			complete := func() {
				if mode != "structured" { // the oracle only reads records of that mode
					return
				}
				s := world.ReadStream(t, bus, p.Reader())
				got := world.Check(t, p, s, world.ViewOf(s.Completed(t, "configmaps")), "configmaps")
				got.NoGaps(t)
			}
			complete()
			var want map[string]string
			var all int
			wait.Eventually(t, time.Minute, func() error {
				// Each is created and updated, every third deleted, and every sixth created again.
				want, all = parents(t, bus)
				if all < objects+objects+(objects+2)/3+(objects+5)/6 {
					return fmt.Errorf("%d events have come", all)
				}
				return nil
			})
			if len(want) == 0 || len(want) >= all {
				t.Fatalf("%d of %d events are traced, want about half of them", len(want), all)
			}
			// Objects that the control plane creates in each namespace may come after the events
			// counted above.
			wait.Eventually(t, 30*time.Second, func() error {
				want, all = parents(t, bus)
				c.mu.Lock()
				defer c.mu.Unlock()
				if diff := cmp.Diff(want, c.roots); diff != "" {
					return fmt.Errorf("events by traceparent, -on the bus +at the collector:\n%s", diff)
				}
				return nil
			})
			c.mu.Lock()
			roots := maps.Clone(c.roots)
			for parent, n := range c.children {
				if n < 3 || roots[parent] == "" { // queue, encode, publish
					t.Errorf("%d spans below %s, whose event is %q", n, parent, roots[parent])
				}
			}
			if len(c.children) != len(roots) || len(c.faults) > 0 {
				t.Errorf("%d roots, %d with children; %v", len(roots), len(c.children), c.faults)
			}
			c.mu.Unlock()

			c.Close() // before the agent ends, which must report that it drops spans, and end with code 0
			p.MakeConfigMaps(t, namespace, "untraced", objects)
			complete()
			wait.Eventually(t, time.Minute, func() error {
				if _, now := parents(t, bus); now < all+objects {
					return fmt.Errorf("%d events have come behind %d, want %d", now-all, all, objects)
				}
				return nil
			})
			if err := a.Stop(time.Minute); err != nil {
				t.Errorf("the agent, without its collector: %v", err)
			}
			log, err := os.ReadFile(a.Log)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(log), "spans are dropped") {
				t.Error("the log has no word of spans that are dropped")
			}
		})
	}
}
