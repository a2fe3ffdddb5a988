package http

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

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
