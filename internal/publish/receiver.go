package publish

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ReceiverConfig is where a Receiver posts to.
type ReceiverConfig struct {
	URL         string
	Timeout     time.Duration // of a request
	HeadersFile string        // as in HTTPConfig
	Insecure    bool          // as in HTTPConfig
	TLS         *TLS
}

// Receiver is an HTTP server that is no bus: a collector of traces. Its credentials and certificates are kept as those of
// HTTP are: read again when the files change, and never logged.
type Receiver struct {
	endpoint    *url.URL
	timeout     time.Duration
	credentials *credentials
	links       *links
}

// Answer is what a receiver says.
type Answer struct {
	Status     int           // of HTTP
	RetryAfter time.Duration // 0: it does not say
	Body       []byte        // at most 64 KiB; it may repeat what was sent, credentials included
}

// NewReceiver checks the configuration and reads the files that it names.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	u, err := parseEndpoint(cfg.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("url: %w", err)
	case u.Scheme == "http" && cfg.TLS != nil:
		return nil, fmt.Errorf("url: is http, but tls is configured: write https, or leave tls out")
	}
	r := &Receiver{
		endpoint: u, timeout: cfg.Timeout, credentials: &credentials{headersFile: cfg.HeadersFile}, links: &links{tls: cfg.TLS, idle: 1},
	}
	r.links.plaintext = r.credentials.inPlaintext(u, cfg.Insecure)
	if _, _, err := r.credentials.read(); err != nil {
		return nil, err
	}
	if _, err := r.links.pick(false); err != nil {
		return nil, err
	}
	return r, nil
}

// String is scheme, host and port: what may be logged of the URL.
func (r *Receiver) String() string { return originOf(r.endpoint) }

// Post makes one request. An error means that there is no answer; it holds no secret.
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return Answer{}, WithoutURL(err)
	}
	req.Header = credentials.Clone()
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return Answer{}, WithoutURL(err)
	}
	defer res.Body.Close()
	a := Answer{Status: res.StatusCode}
	a.RetryAfter, _ = retryAfter(res.Header, time.Now())
	if a.Body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswerHeader)); err != nil {
		return Answer{}, WithoutURL(err)
	}
	return a, nil
}

// Close ends connections that stand idle.
func (r *Receiver) Close() { r.links.close() }
