package http

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// Receiver is an HTTP server that is no bus: a collector of traces. Its credentials and certificates are kept as those of
// a Bus are: read again when the files change, and never logged.
type Receiver struct{ *client }

// Answer is the answer of a Receiver.
type Answer struct {
	Status     int           // of HTTP
	RetryAfter time.Duration // 0: it does not say
	Body       []byte        // at most 64 KiB; it may repeat what was sent, credentials included
}

// NewReceiver checks the configuration and reads the files that it names.
func NewReceiver(cfg ClientConfig) (*Receiver, error) {
	c, err := newClient(cfg, 1, 0)
	if err != nil {
		return nil, err
	}
	return &Receiver{c}, nil
}

// String returns scheme, host and port: what may be logged of the URL.
func (r *Receiver) String() string { return r.origin }

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

// Close ends connections that stand idle.
func (r *Receiver) Close() { r.links.close() }
