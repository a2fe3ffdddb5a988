package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	queueLength    = 2048 // captures that wait; further ones are dropped
	batchLength    = 256  // captures in one request
	lingerTime     = 2 * time.Second
	requestTimeout = 10 * time.Second
	giveUpAfter    = 30 * time.Second // for a batch that the collector cannot take for now
	flushTimeout   = 2 * time.Second  // after ctx ends
	warnEvery      = time.Minute

	// Pauses between attempts, doubled each time.
	firstPause   = 500 * time.Millisecond
	longestPause = 8 * time.Second
)

// path is the URL path at which a collector takes traces (OTLP specification, "OTLP/HTTP Request").
const path = "v1/traces"

// Config is the destination of spans, and the agent's attributes in them.
type Config struct {
	Endpoint    string       // URL of the collector, without /v1/traces
	HeadersFile string       // as in http.Config of package publish
	Insecure    bool         // as in http.Config of package publish
	TLS         *publish.TLS // nil: as the URL says

	Version    string // of the agent
	Instance   string // the pod's name, to distinguish several agents
	Cluster    string // name
	ClusterUID string

	System      string // messaging.system: "nats", "kafka"; "" if the bus is not a messaging system
	Destination string // messaging.destination.name: the stream, the topic
}

// Tracer implements publish.Tracer.
type Tracer struct {
	cfg      Config
	resource *spans.ResourceSpans // without spans
	receiver *publishhttp.Receiver
	// All workers write to queue, and Run reads from it. A full queue drops captures. It is never
	// closed.
	queue   chan *publish.Capture
	flush   time.Duration // flushTimeout
	log     *slog.Logger
	metrics *metrics
	warned  time.Time // used only by Run
}

// New checks the configuration and reads the files that it names.
func New(cfg Config, log *slog.Logger, reg prometheus.Registerer) (*Tracer, error) {
	receiver, err := publishhttp.NewReceiver(publishhttp.ClientConfig{
		URL: addPath(cfg.Endpoint),
		Timeout: yamldoc.Duration{
			Duration: requestTimeout,
		},
		HeadersFile: cfg.HeadersFile,
		Insecure:    cfg.Insecure,
		TLS:         cfg.TLS,
	})
	if err != nil {
		return nil, fmt.Errorf("collector of traces: %w", err)
	}
	return &Tracer{
		cfg:      cfg,
		resource: newResource(&cfg),
		receiver: receiver,
		queue:    make(chan *publish.Capture, queueLength),
		flush:    flushTimeout,
		log:      log,
		metrics:  newMetrics(reg),
	}, nil
}

// addPath returns the URL that spans are posted to.
func addPath(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return endpoint // NewReceiver returns the error
	}
	return u.JoinPath(path).String()
}

// Captured implements publish.Tracer.
func (t *Tracer) Captured(c *publish.Capture) {
	select {
	case t.queue <- c:
	default:
		t.drop(dropQueue, spansOf(c))
	}
}

func (t *Tracer) drop(reason string, n int) {
	t.metrics.dropped.WithLabelValues(reason).Add(float64(n))
}

// Run sends captures until ctx ends, then the remaining ones for at most flushTimeout. It always
// returns nil.
func (t *Tracer) Run(ctx context.Context) error {
	defer t.receiver.Close()
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(t.flush, stop) })()
	for {
		batch := t.gather(ctx)
		if len(batch) == 0 {
			return nil
		}
		t.send(sending, ctx.Done(), batch)
	}
}

// gather waits until a batch is full, or for lingerTime after its first capture. After ctx has
// ended it returns the queued captures.
func (t *Tracer) gather(ctx context.Context) []*publish.Capture {
	var batch []*publish.Capture
	var linger <-chan time.Time
	for len(batch) < batchLength {
		select {
		case c := <-t.queue:
			batch = append(batch, c)
			if linger == nil {
				linger = time.After(lingerTime)
			}
		case <-linger:
			return batch
		case <-ctx.Done():
			select {
			case c := <-t.queue:
				batch = append(batch, c)
				continue
			default:
				return batch
			}
		}
	}
	return batch
}

// errLater reports that the collector may accept the same request later.
var errLater = errors.New("it may be tried again")

// send makes requests until the collector accepts or rejects the batch, or giveUpAfter is over.
// After ending is closed, it makes one more attempt.
func (t *Tracer) send(ctx context.Context, ending <-chan struct{}, batch []*publish.Capture) {
	body, n, err := t.encode(batch)
	if err != nil {
		t.give(dropRefused, n, err)
		return
	}
	begin := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		last := ended(ending)
		after, err := t.attempt(ctx, body, n)
		wait := max(pause, after)
		switch {
		case err == nil:
			return
		case !errors.Is(err, errLater):
			t.give(dropRefused, n, err)
			return
		case last:
			t.give(dropShutdown, n, err)
			return
		case time.Since(begin)+wait > giveUpAfter:
			t.give(dropUnreachable, n, err)
			return
		}
		select {
		case <-time.After(wait):
		case <-ending:
		}
	}
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// attempt makes one request of n spans. after is the pause that the collector demands.
func (t *Tracer) attempt(ctx context.Context, body []byte, n int) (after time.Duration, err error) {
	a, err := t.receiver.Post(ctx, http.Header{"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {
		"gzip",
	}}, body)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", errLater, err)
	case a.Status >= 200 && a.Status < 300:
		t.accepted(a.Body, n)
		return 0, nil
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusBadGateway,
		a.Status == http.StatusServiceUnavailable,
		a.Status == http.StatusGatewayTimeout: // OTLP specification, "Failures"
		return a.RetryAfter, fmt.Errorf("%w: it answers %d", errLater, a.Status)
	}
	// The error omits the response body, which may repeat a credential.
	return 0, fmt.Errorf("it answers %d %s", a.Status, http.StatusText(a.Status))
}

// accepted counts the spans that the collector accepted; it may report that it rejected some (OTLP
// specification, "Partial Success").
func (t *Tracer) accepted(answer []byte, n int) {
	var r collector.ExportTraceServiceResponse
	rejected := 0
	if proto.Unmarshal(answer, &r) == nil {
		rejected = int(min(max(r.GetPartialSuccess().GetRejectedSpans(), 0), int64(n)))
	}
	t.metrics.exported.Add(float64(n - rejected))
	if rejected > 0 {
		t.give(dropRefused, rejected, errors.New("it has accepted the others of the same request"))
	}
}

// give counts dropped spans, and logs the first loss of each warnEvery.
func (t *Tracer) give(reason string, n int, err error) {
	t.drop(reason, n)
	if time.Since(t.warned) < warnEvery {
		return
	}
	t.warned = time.Now()
	t.log.Warn("spans are dropped, events are not concerned", "collector", t.receiver.String(), "reason", reason,
		"spans", n, "err", err)
}

// encode returns the body of a request, and the number of its spans.
func (t *Tracer) encode(batch []*publish.Capture) (body []byte, n int, err error) {
	scope := &spans.ScopeSpans{Scope: t.resource.ScopeSpans[0].Scope}
	for _, c := range batch {
		scope.Spans = t.appendSpans(scope.Spans, c)
	}
	raw, err := proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: []*spans.ResourceSpans{{
		Resource: t.resource.Resource, SchemaUrl: t.resource.SchemaUrl, ScopeSpans: []*spans.ScopeSpans{scope},
	}}})
	if err != nil {
		return nil, len(scope.Spans), err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(raw)
	err = errors.Join(err, z.Close())
	return b.Bytes(), len(scope.Spans), err
}
