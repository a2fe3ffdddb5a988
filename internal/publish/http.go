package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/encode"
)

const (
	httpTimeout      = 30 * time.Second
	httpBatchFlights = 4 // requests at once with batches: what comes while they are on their way fills the next ones
	maxBatchBytes    = 1 << 20
	singleBuffer     = 16 << 10
	batchBuffer      = 64 << 10
	notReadyAfter    = 5 // failed requests in a row
)

// HTTPConfig says where an HTTP publisher publishes to.
type HTTPConfig struct {
	URL string // http or https. Its path and query may be a secret: they are never logged

	// Batch is how many events a request may hold; above 1, structured events go in batched content mode, up to 1 MiB a
	// request. 0: 1.
	Batch int
	// Timeout is how long a request may take, from dialling to the status. 0: 30 s.
	Timeout     time.Duration
	HeadersFile string // lines "Name: value", sent with each request; read again when it has changed. "": none
	TokenFile   string // a bearer token; read again when it has changed. "": none
	Insecure    bool   // both may be sent unencrypted to another machine
	TLS         *TLS   // nil with https: the system's certificates

	// InFlight bounds the requests that are on their way. 0: DefaultWorkers; with Batch above 1: 4, because what waits for
	// one of them is what fills the next.
	InFlight int

	// Fence is asked before each request, and before each write to a socket. nil: everything passes.
	Fence Fence
	// DeadLetterURL is where DeadLetters publishes to; "": nowhere. Credentials (the two files above, the client's
	// certificate) go only to the origin of URL: same scheme, host and port.
	DeadLetterURL string
}

// HTTP publishes to a receiver by the CloudEvents HTTP binding 1.0: structured, binary or, with HTTPConfig.Batch, batched. A
// status of 2xx is the acknowledgement.
//
// What may pass (no connection, 401, 403, 404, 407, 408, 425, 429, any 5xx, a redirect) is tried again. 429, 503 and a
// receiver that cannot be connected to hold up all calls: one of them tries, the others go on when it got through. 413
// is ErrTooLarge, any other 4xx ErrRefused.
//
// # A request that kills
//
// Some receivers do not say no, they close the connection, or a proxy before them does. A connection may also be cut
// because a receiver is restarted, takes no more connections, or had stood idle for too long. To tell them apart, a request whose
// connection was cut without an answer is sent again on a connection that it shares with none, then on whichever there is, and so
// on in turns; with HTTP/2, where others are cut with it, it goes on five of its own first. If five of its own are cut, and before
// each but the first the receiver has answered three other requests on connections of their own (events that come anyway are sent on
// such ones for it), the event counts as refused.
//
// Nothing counts while others fare no better: when more than one in twenty was cut itself, on a connection of its own, and
// answered later, the count begins anew. So a receiver that is down, one that comes back, and one that takes no further connection are
// never taken for one that refuses. Where each connection is cut with a probability of p, whatever it carries, a run of five such
// cuts has one of p⁵(1-p)¹²: one in 350,000 for 1 in 10, and one in 30,000 at the worst p. With HTTP/1 the requests in between
// have to be cut too.
//
// # A request that is not let in
//
// 403 and 404 are mostly about the sender and the address, and pass when these are put right. But a firewall for applications also
// says so to one event because of what it holds. An event that is answered so ten times, with three others acknowledged
// before each but the first, and for five minutes, counts as refused, by the same rules. 401 and 407 are about credentials, and are
// tried again for ever. A pump's worker whose event is denied is replaced by another one until the event is done: many such events
// leave room for others.
type HTTP struct {
	cfg      HTTPConfig
	endpoint *url.URL
	origin   string // for errors and the log
	log      *slog.Logger
	metrics  *Metrics
	window   Window

	credentials *credentials
	links       *links
	fence       *Fencing
	throttle    throttle
	slots       chan struct{} // holds one for each request that is on its way without a batch; when full, calls wait. Never closed
	batcher     *batcher      // nil: no batches
	dead        *HTTP         // nil: none
	isDead      bool          // it is another's dead

	failures atomic.Int64 // requests in a row that failed

	cuts        tally        // fine: what was answered on a connection of its own, whatever the receiver said
	denials     tally        // fine: 2xx
	controls    atomic.Int64 // requests that are still wanted on connections of their own, to show that these work
	multiplexed atomic.Bool  // requests share connections: HTTP/2
	pause       Backoff      // between two requests for one event
	now         func() time.Time

	life context.Context //nolint:containedctx // ends with Run: it frees the calls that are on their way
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool           // no call may begin
	calls  sync.WaitGroup // of Publish; Add under mu
}

// NewHTTP checks the configuration, reads the files that it names, and returns a publisher. Nothing is connected before the first
// Publish.
func NewHTTP(cfg HTTPConfig, log *slog.Logger, m *Metrics) (*HTTP, error) {
	if m == nil {
		m = NewMetrics(nil)
	}
	h, err := newHTTP(cfg, "url", log, m)
	if err != nil || cfg.DeadLetterURL == "" {
		return h, err
	}
	other := HTTPConfig{URL: cfg.DeadLetterURL, Timeout: cfg.Timeout, Fence: cfg.Fence}
	u, err := parseEndpoint(cfg.DeadLetterURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("dead letter url: %w", err)
	case originOf(u) == h.origin:
		other.HeadersFile, other.TokenFile, other.Insecure, other.TLS = cfg.HeadersFile, cfg.TokenFile, cfg.Insecure, cfg.TLS
	case u.Scheme == "https" && cfg.TLS != nil:
		other.TLS = &TLS{CAFile: cfg.TLS.CAFile}
	}
	if h.dead, err = newHTTP(other, "dead letter url", log, m); err != nil {
		return nil, err
	}
	h.dead.isDead = true
	return h, nil
}

func newHTTP(cfg HTTPConfig, key string, log *slog.Logger, m *Metrics) (*HTTP, error) {
	u, err := parseEndpoint(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if u.Scheme == "http" && cfg.TLS != nil {
		return nil, fmt.Errorf("%s: is http, but tls is configured: write https, or leave tls out", key)
	}
	if cfg.Batch < 0 || cfg.Timeout < 0 || cfg.InFlight < 0 {
		return nil, errors.New("batch, timeout and in-flight requests must not be negative")
	}
	cfg.Batch = max(cfg.Batch, 1)
	if cfg.Timeout == 0 {
		cfg.Timeout = httpTimeout
	}
	singles := DefaultWorkers
	if cfg.Batch == 1 && cfg.InFlight > 0 {
		singles = cfg.InFlight
	}
	h := &HTTP{
		cfg: cfg, endpoint: u, origin: originOf(u), log: log, metrics: m,
		credentials: &credentials{headersFile: cfg.HeadersFile, tokenFile: cfg.TokenFile, endpoint: secretsOf(u)},
		links:       &links{tls: cfg.TLS, idle: singles, buffer: singleBuffer},
		slots:       make(chan struct{}, singles),
		fence:       NewFencing(cfg.Fence),
		pause:       Backoff{First: 100 * time.Millisecond, Limit: 10 * time.Second},
		now:         time.Now,
	}
	h.links.fence, h.links.plaintext = h.fence, h.credentials.inPlaintext(u, cfg.Insecure)
	if cfg.Batch > 1 {
		if cfg.InFlight == 0 {
			cfg.InFlight = httpBatchFlights
		}
		h.links.buffer = batchBuffer
		h.batcher = newBatcher(cfg.Batch, cfg.InFlight, h.postBatch)
	}
	if _, _, err := h.credentials.read(); err != nil {
		return nil, err
	}
	if _, err := h.links.pick(false); err != nil {
		return nil, err
	}
	h.life, h.end = context.WithCancel(context.Background())
	h.throttle.changed, h.throttle.over = make(chan struct{}), h.life.Done()
	return h, nil
}

// parseEndpoint checks a URL. Errors do not quote it: it may hold a secret.
func parseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, WithoutURL(err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("no host")
	case u.User != nil:
		return nil, errors.New("must not hold a user or a password: put them into headersFile (Authorization: Basic …) or tokenFile")
	case u.Fragment != "":
		return nil, errors.New("must not hold a fragment (#…): it is never sent")
	}
	return u, nil
}

// originOf is scheme, host and port, the port always.
func originOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return u.Scheme + "://" + host + ":" + port
}

// DeadLetters publishes to HTTPConfig.DeadLetterURL; nil if there is none. It lives as long as h's Run.
func (h *HTTP) DeadLetters() Publisher {
	if h.dead == nil {
		return nil
	}
	return h.dead
}

// Ready returns an error while the last five requests have all failed for a reason that may pass, and after Run.
//
// Before the first event it returns nil: there is no request that would prove a receiver willing and cost it nothing, and
// where nothing changes there may be no event for hours. An event that is refused proves that the receiver is there.
func (h *HTTP) Ready() error {
	if h.life.Err() != nil {
		return ErrClosed
	}
	if n := h.failures.Load(); n >= notReadyAfter {
		return fmt.Errorf("the last %d requests to %s failed: see the log", n, h.origin)
	}
	return nil
}

// Run sends batches until ctx ends: before, those who publish wait. Then it ends the requests that are on their way, closes the
// connections and returns nil. A receiver that cannot be reached is no error.
//
// End ctx only after the last call of Publish has returned: those that have not then return ErrClosed. Call it once.
func (h *HTTP) Run(ctx context.Context) error {
	if h.endpoint.Scheme == "http" && (h.cfg.HeadersFile != "" || h.cfg.TokenFile != "") {
		h.log.Warn("credentials are sent unencrypted", "receiver", h.origin, "advice", "write bus.http.url with https")
	}
	var senders errgroup.Group
	if h.batcher != nil {
		for range h.batcher.senders {
			senders.Go(func() error { h.batcher.run(h.life); return nil })
		}
	}
	<-ctx.Done()
	h.close()
	if h.dead != nil {
		h.dead.close()
	}
	h.metrics.Connected.Set(0)
	return senders.Wait()
}

func (h *HTTP) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.end()
	if h.batcher != nil {
		h.batcher.close()
	}
	h.calls.Wait()
	h.links.close() // for good: what a request still gives back is closed too
}

func (h *HTTP) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.calls.Add(1)
	return true
}

// Publish implements Publisher.
func (h *HTTP) Publish(ctx context.Context, ev *encode.Event) error {
	if !h.enter() {
		return ErrClosed
	}
	defer h.calls.Done()
	c := httpCall{}
	for attempt, failures := 1, 0; ; attempt++ {
		r := h.attempt(ctx, ev, &c)
		c.alone = c.alone || r.alone
		h.judge(&c, &r)
		switch r.kind {
		case httpAcked:
			return nil
		case httpRefused:
			return fmt.Errorf("publish %s to %s: %w: %s", ev.ID, h.origin, ErrRefused, r.detail)
		case httpTooLarge:
			return fmt.Errorf("publish %s to %s: %w: %s", ev.ID, h.origin, ErrTooLarge, r.detail)
		case httpFenced:
			return fmt.Errorf("publish %s to %s: %w", ev.ID, h.origin, r.err)
		case httpEnded, httpAgain, httpRetry:
		}
		if err := h.over(ctx); err != nil {
			return err
		}
		if r.kind != httpRetry {
			continue // not its fault: the batch was refused, or whoever sent it has gone
		}
		h.noteRetry(ev, attempt, &r)
		NoteFailure(ctx, r.reason)
		if r.shut {
			failures = 0
			continue // the throttle holds it
		}
		if r.cut && !r.own {
			continue // on a connection of its own, at once
		}
		failures++
		if !await(ctx, h.life.Done(), nil, h.pause.Delay(failures)) {
			return h.over(ctx)
		}
	}
}

// over is why a call has to return, nil if it has not.
func (h *HTTP) over(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if h.life.Err() != nil {
		return ErrClosed
	}
	return nil
}

// attempt sends the event once, alone or with others.
func (h *HTTP) attempt(ctx context.Context, ev *encode.Event, c *httpCall) httpResult {
	structured := len(ev.Attributes) == 0
	if h.batcher != nil && !c.alone && structured {
		return h.batcher.send(ctx, ev.Body)
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return httpResult{kind: httpEnded}
	case <-h.life.Done():
		return httpResult{kind: httpEnded}
	}
	pass, ok := h.throttle.enter(ctx)
	if !ok {
		return httpResult{kind: httpEnded}
	}
	r := h.blocked(ctx)
	if r != nil {
		h.throttle.leave(pass, r)
		return *r
	}
	contentType, body := ev.ContentType, ev.Body
	if structured && h.batcher != nil { // who takes batches may take nothing else
		contentType, body = batchType, slices.Concat([]byte{'['}, body, []byte{']'})
	}
	// A receiver that refuses a request by its length and does not read the rest cuts the connection, and its answer is lost with
	// it. Asked before the body is sent, it can say so.
	ask := c.own > 0 && len(body) > expectBytes && !c.unasked
	sent := h.post(ctx, contentType, ev.Attributes, body, c.own > 0 || c.cut.count == 0 && h.control(), ask)
	if ask && sent.status == http.StatusExpectationFailed {
		c.unasked, sent.kind = true, httpAgain
	}
	h.throttle.leave(pass, &sent)
	return sent
}

// blocked waits at the fence; nil: a request may be made now.
func (h *HTTP) blocked(ctx context.Context) *httpResult {
	if h.fence == nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.life, func() { cancel(ErrClosed) })()
	err := h.fence.Pass(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &httpResult{kind: httpEnded}
	}
	return &httpResult{kind: httpFenced, err: err}
}

// noteRetry counts, and logs the first of its kind in each window.
func (h *HTTP) noteRetry(ev *encode.Event, attempt int, r *httpResult) {
	h.metrics.Retries.WithLabelValues(r.reason).Inc()
	level, advice := slog.LevelError, ""
	switch r.reason {
	case ReasonUnauthorized:
		advice = "the receiver does not accept the credentials: see headersFile, tokenFile or tls.certFile; where it goes on to answer 403 to this event and takes others, the event counts as refused"
	case ReasonProxy:
		advice = "the proxy wants credentials: see HTTP_PROXY and HTTPS_PROXY"
	case ReasonNotFound:
		advice = "the receiver does not know the path: see url; where it goes on to answer so to this event and takes others, the event counts as refused"
	case ReasonRedirect:
		advice = "redirects are not followed: write the address that the receiver names as url; its path is not logged"
	case ReasonCredentials:
		advice = "see that the file can be read and is in order; it is read again at each attempt"
	case ReasonTLS:
		advice = "see the files of tls and the receiver's certificate; they are read again at each connection"
	case ReasonCut:
		advice = "the receiver closes the connection without an answer: see its log; where it does so again while it answers others, the event counts as refused"
		if !r.own {
			level = slog.LevelWarn
		}
	default:
		level, advice = slog.LevelWarn, "none: it is retried until the receiver has it"
	}
	if suppressed, ok := h.window.First(r.reason); ok {
		h.log.Log(context.Background(), level, "event is published again", "reason", r.reason, "advice", advice, "detail", r.detail,
			"receiver", h.origin, "event_id", string(ev.ID), "attempt", attempt, "suppressed", suppressed)
	}
}

// noteHealth keeps what Ready says. kind is that of a request.
func (h *HTTP) noteHealth(kind httpKind) {
	failed, ready := int64(0), true
	switch kind {
	case httpRetry:
		failed = h.failures.Add(1)
		if failed < notReadyAfter {
			return
		}
		ready = false
	case httpEnded, httpAgain, httpFenced:
		return
	default:
		h.failures.Store(0)
	}
	switch {
	case h.isDead:
	case ready:
		h.metrics.Connected.Set(1)
	default:
		h.metrics.Connected.Set(0)
	}
}
