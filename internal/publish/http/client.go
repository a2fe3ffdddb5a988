package http

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// ClientConfig configures the requests of a Receiver or a ClaimStore.
type ClientConfig struct {
	URL         string           `yaml:"url"`                   // http or https
	Timeout     yamldoc.Duration `yaml:"timeout"`               // of a request, from dialling to the status; 0: 30 s
	HeadersFile string           `yaml:"headersFile,omitempty"` // lines "Name: value" for each request; read again after a change. "" for none
	TokenFile   string           `yaml:"tokenFile,omitempty"`   // a bearer token; read again after a change. "" for none
	Insecure    bool             `yaml:"insecure,omitempty"`    // permits sending both unencrypted to another machine
	TLS         *publish.TLS     `yaml:"tls,omitempty"`         // nil with https: the system's certificates
	Fence       publish.Fence    `yaml:"-"`                     // checked before each request of a ClaimStore and each write to a socket; nil passes everything
}

// SetDefaults implements yamldoc.Defaulter.
func (cfg *ClientConfig) SetDefaults() {
	*cfg = ClientConfig{Timeout: yamldoc.Duration{Duration: defaultTimeout}}
}

// client holds the state for requests to one URL.
type client struct {
	url         *url.URL
	origin      string // for errors and the log
	timeout     time.Duration
	credentials *credentials
	links       *links
	fence       *publish.Fencing
}

// newClient checks the URL and reads the files that cfg names. connections limits idle connections; buffer is their write buffer, 0: 4 KiB.
func newClient(cfg ClientConfig, connections, buffer int) (*client, error) {
	if wrong := cfg.validateURL(nil); len(wrong) > 0 { // the URL may be a secret, so no error repeats it
		return nil, wrong.ToAggregate()
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, publish.WithoutURL(err)
	}
	c := &client{
		url: u, origin: originOf(u), timeout: cmp.Or(cfg.Timeout.Duration, defaultTimeout), fence: publish.NewFencing(cfg.Fence),
		credentials: &credentials{headersFile: cfg.HeadersFile, tokenFile: cfg.TokenFile, endpoint: secretsOf(u)},
		links:       &links{tls: cfg.TLS, idle: connections, buffer: buffer},
	}
	c.links.fence, c.links.plaintext = c.fence, c.credentials.inPlaintext(u, cfg.Insecure)
	if _, _, err := c.credentials.read(); err != nil {
		return nil, err
	}
	if _, err := c.links.pick(false); err != nil {
		return nil, err
	}
	return c, nil
}

// originOf returns scheme, host and port, even if the URL has no port.
func originOf(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// Receiver sends requests to an HTTP server that is not a bus: a collector of traces. It treats credentials and certificates like a Bus: it
// reads changed files again, and never logs them.
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
	transport, err := r.links.pick(false)
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
	if a.Body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswerHeader)); err != nil {
		return Answer{}, publish.WithoutURL(err)
	}
	return a, nil
}

// Close closes idle connections.
func (r *Receiver) Close() { r.links.close() }
