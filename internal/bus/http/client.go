package http

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/claim"
	"github.com/kubecdc/kubecdc/internal/bus/http/httpconfig"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// ClientConfig configures the requests of a Receiver or a ClaimStore.
type ClientConfig = httpconfig.ClientConfig

// client holds the state for requests to one URL.
type client struct {
	url         *url.URL
	origin      string // for errors and the log
	timeout     time.Duration
	credentials *credentials
	links       *links
	fence       *publish.Fencing
	pace        pace
}

// newClient checks the URL and reads the files that cfg names. connections limits idle connections;
// buffer is their write buffer, 0: 4 KiB.
func newClient(cfg ClientConfig, connections, buffer int) (*client, error) {
	if wrong := cfg.ValidateURL(nil); len(wrong) > 0 { // the URL may be a secret, so no error repeats it
		return nil, wrong.ToAggregate()
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, publish.WithoutURL(err)
	}
	c := &client{
		url:         u,
		origin:      originOf(u),
		timeout:     cmp.Or(cfg.Timeout.Duration, httpconfig.DefaultTimeout),
		fence:       publish.NewFencing(cfg.Fence),
		credentials: &credentials{headersFile: cfg.HeadersFile, tokenFile: cfg.TokenFile, endpoint: secretsOf(u)},
		links:       &links{tls: cfg.TLS, idle: connections, buffer: buffer},
	}
	c.links.fence, c.links.plaintext = c.fence, c.credentials.isInPlaintext(u, cfg.Insecure)
	if _, _, err := c.credentials.read(); err != nil {
		return nil, err
	}
	if _, err := c.links.pickTransport(false); err != nil {
		return nil, err
	}
	return c, nil
}

// originOf returns scheme, host and port, even if the URL has no port.
func originOf(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// Receiver sends requests to an HTTP server that is not a bus: a collector of traces. It treats
// credentials and certificates like a Bus: it reads changed files again, and never logs them.
type Receiver struct{ *client }

// Answer is the response of a Receiver.
type Answer struct {
	Status     int           // the HTTP status
	RetryAfter time.Duration // 0 if the receiver gave none
	Body       []byte        // at most 64 KiB; it may repeat the request, including credentials
}

// NewReceiver returns a receiver, and reads the files that cfg names.
func NewReceiver(cfg ClientConfig) (*Receiver, error) {
	c, err := newClient(cfg, 1, 0)
	if err != nil {
		return nil, err
	}
	return &Receiver{c}, nil
}

// String returns scheme, host and port, the part of the URL that may be logged.
func (r *Receiver) String() string { return r.origin }

// Post sends one request. An error means that there is no response; it contains no secret.
func (r *Receiver) Post(ctx context.Context, header http.Header, body []byte) (Answer, error) {
	credentials, _, err := r.credentials.read()
	if err != nil {
		return Answer{}, err
	}
	transport, err := r.links.pickTransport(false)
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url.String(), bytes.NewReader(body))
	if err != nil {
		return Answer{}, publish.WithoutURL(err)
	}
	req.Header = credentials.Clone()
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return Answer{}, publish.WithoutURL(err)
	}
	defer res.Body.Close()
	a := Answer{Status: res.StatusCode}
	a.RetryAfter, _ = retryAfter(res.Header, time.Now())
	a.Body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswerHeader))
	if err != nil {
		return Answer{}, publish.WithoutURL(err)
	}
	return a, nil
}

// Close closes idle connections.
func (r *Receiver) Close() { r.links.close() }

const (
	tlsTimeout      = 10 * time.Second
	idleTimeout     = 30 * time.Second // shorter than the timeout of most receivers: closing first avoids a race
	tcpKeepAlive    = 15 * time.Second
	httpPing        = 5 * time.Second // without a frame, after which an HTTP/2 connection is tested
	maxAnswerHeader = 64 << 10
	expectTimeout   = publish.RequestTimeout // maximum wait for 100-continue; then the body is sent anyway
)

// links holds the connections to a receiver: shared ones, and separate ones for one request each.
// It replaces them after the content of the caFile changes. Each handshake reads the client's
// certificate.
type links struct {
	tls  *publish.TLS
	idle int // idle connections to keep
	// buffer is the size of a connection's write buffer. It also buffers the body, because a
	// payload is not a bytes.Reader, which net/http would write at once. The 4 KiB of net/http
	// would need two writes for most events, and 30 for a batch.
	buffer int
	fence  *publish.Fencing // nil: connections have no guard

	plaintext bool // secrets are sent unencrypted, so only loopback connections are allowed

	mu     sync.Mutex
	stamp  stamp  // of the caFile at the last reading
	roots  []byte // its content: the trusted authorities
	shared *http.Transport
	own    *http.Transport
	number uint64 // counts the transports that shared has had
}

func (l *links) pickTransport(own bool) (*http.Transport, error) {
	var now stamp
	if l.tls != nil && l.tls.CAFile != "" {
		var err error
		now, err = stampOf(l.tls.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls: read caFile: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(now); err != nil {
		return nil, err
	}
	if own {
		return l.own, nil
	}
	return l.shared, nil
}

// refresh reads the caFile again after a change; now is its stamp from a moment before. While the
// file is unusable, nothing is sent, not even on open connections.
func (l *links) refresh(now stamp) error {
	roots := l.roots
	if now.info != nil && !l.stamp.isSame(now) {
		var err error
		roots, err = publish.ReadFile(l.tls.CAFile)
		if err != nil {
			return fmt.Errorf("tls: read caFile: %w", err)
		}
	}
	if l.shared != nil && bytes.Equal(roots, l.roots) {
		l.stamp = now
		return nil
	}
	config, err := l.tls.Config()
	if err != nil {
		return err
	}
	if l.shared != nil {
		// Connections in use close after they have been idle for a while.
		l.shared.CloseIdleConnections()
	}
	dialer := &net.Dialer{Timeout: publish.DialTimeout, KeepAlive: tcpKeepAlive}
	// DialTLSContext would not be called for connections through a proxy.
	l.shared = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            l.dial(dialer),
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    tlsTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           l.idle,
		MaxIdleConnsPerHost:    l.idle,
		IdleConnTimeout:        idleTimeout,
		WriteBufferSize:        l.buffer,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true, // quoted errors must be readable, and acknowledgements are empty
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: httpPing, PingTimeout: publish.DialTimeout},
	}
	l.number++
	l.own = l.shared.Clone()
	l.own.DisableKeepAlives = true
	l.own.ExpectContinueTimeout = expectTimeout
	l.stamp, l.roots = now, roots
	return nil
}

// generation returns the number of the present shared connections.
func (l *links) generation() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number
}

// renew makes later requests use other shared connections than those of a generation. A request of
// that generation is overdue, so its path may be dead, and with it each connection that is idle.
func (l *links) renew(generation uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number != generation {
		return // renewed since
	}
	old := l.shared
	l.shared = old.Clone()
	l.number++
	old.CloseIdleConnections() // those in use close when their request ends
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared.CloseIdleConnections()
	l.own.CloseIdleConnections()
}

// dial returns the function that opens connections. Except for handshakes, every write to them
// belongs to an event.
func (l *links) dial(d *net.Dialer) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := d.DialContext
	if l.plaintext {
		dial = publish.LoopbackOnly(dial)
	}
	if l.fence == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return l.fence.Guard(conn, true), nil
	}
}

// ClaimStore stores claims with HTTP: a PUT of the whole event, which the server answers with 2xx
// after the event is durable. WebDAV works this way, and object storage whose URL needs no
// signature of the request.
type ClaimStore struct {
	*client
	retry *claim.Retry
}

// NewClaimStore returns a claim store and reads the files that cfg names. The claim's name is
// appended to the URL's path; the URL's query is part of each request, but of no reference.
func NewClaimStore(cfg ClientConfig, log *slog.Logger, m *publish.Metrics) (*ClaimStore, error) {
	c, err := newClient(cfg, 1, 0)
	if err != nil {
		return nil, fmt.Errorf("claim store: %w", err)
	}
	return &ClaimStore{client: c, retry: claim.NewRetry("claim store "+c.origin, log, m)}, nil
}

// Put implements publish.ClaimStore. ref is the URL without its query.
func (c *ClaimStore) Put(
	ctx context.Context, name, contentType string, body []byte, retried func(reason string),
) (string, error) {
	to := *c.url
	to.Path = strings.TrimSuffix(to.Path, "/") + "/" + name
	if to.RawPath != "" {
		to.RawPath = strings.TrimSuffix(to.RawPath, "/") + "/" + name
	}
	if err := c.retry.Do(ctx, name, retried, func(ctx context.Context) error {
		return c.put(ctx, &to, contentType, body)
	}); err != nil {
		return "", err
	}
	to.RawQuery = ""
	return to.String(), nil
}

// put sends one request on a separate connection: claims are rare, and no connection stays open for
// them.
func (c *ClaimStore) put(ctx context.Context, to *url.URL, contentType string, body []byte) error {
	if err := c.fence.Pass(ctx); err != nil {
		return err
	}
	r := &request{
		method:      http.MethodPut,
		url:         to,
		contentType: contentType,
		own:         true,
	}
	r.body.add(body)
	switch o := c.send(ctx, r); o.kind {
	case acked:
		return nil
	case again:
		return publish.ErrShut
	case refused, tooLarge:
		return fmt.Errorf("%w: %s", publish.ErrRefused, o.detail)
	default: // the caller checks ctx first
		return errors.New(o.detail)
	}
}
