package http

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/claim"
)

// ClaimStore is a claim store behind HTTP: a PUT of the whole event that is answered by 2xx after it is durable. WebDAV works this way,
// and object storage whose URL needs no signature of the request.
type ClaimStore struct {
	*client
	retry *claim.Retry
}

// NewClaimStore checks the configuration and reads the files that it names. The claim's name is appended to the URL's path; the URL's query
// goes with each request, and into no reference.
func NewClaimStore(cfg ClientConfig, log *slog.Logger, m *publish.Metrics) (*ClaimStore, error) {
	c, err := newClient(cfg, 1, 0)
	if err != nil {
		return nil, fmt.Errorf("claim store: %w", err)
	}
	return &ClaimStore{client: c, retry: claim.NewRetry("claim store "+c.origin, log, m)}, nil
}

// Put implements publish.ClaimStore. ref is the URL without its query.
func (c *ClaimStore) Put(ctx context.Context, name, contentType string, body []byte) (string, error) {
	to := *c.url
	to.Path = strings.TrimSuffix(to.Path, "/") + "/" + name
	if to.RawPath != "" {
		to.RawPath = strings.TrimSuffix(to.RawPath, "/") + "/" + name
	}
	if err := c.retry.Do(ctx, name, func(ctx context.Context) error { return c.put(ctx, &to, contentType, body) }); err != nil {
		return "", err
	}
	to.RawQuery = ""
	return to.String(), nil
}

// put makes one request, on a connection of its own: they are rare, and none is left standing.
func (c *ClaimStore) put(ctx context.Context, to *url.URL, contentType string, body []byte) error {
	if err := c.fence.Pass(ctx); err != nil {
		return err
	}
	header, hidden, err := c.credentials.read()
	if err != nil {
		return err
	}
	transport, err := c.links.pick(true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	p := new(payload)
	p.add(body)
	defer p.detach()
	req := (&http.Request{
		Method: http.MethodPut, URL: to, Host: to.Host, Header: header.Clone(), Body: p.reader(), ContentLength: int64(p.size),
	}).WithContext(ctx)
	req.Header.Set("Content-Type", contentType)
	broken := c.fence.Broken()
	res, err := transport.RoundTrip(req)
	if err != nil && c.fence.Broken() != broken {
		return publish.ErrShut
	}
	if err != nil {
		return publish.WithoutURL(err)
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswerHeader)
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	switch r := judgeAnswer(res, "", hidden); r.kind {
	case refused, tooLarge:
		return fmt.Errorf("%w: %s", publish.ErrRefused, r.detail)
	default:
		return fmt.Errorf("it answers %s", r.detail)
	}
}
