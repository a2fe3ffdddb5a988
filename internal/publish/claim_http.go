package publish

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ClaimHTTPConfig says where claims are put by HTTP.
type ClaimHTTPConfig struct {
	URL         string        // the claim's name is appended to its path; its query goes with each request, and into no reference
	Timeout     time.Duration // of a request; 0: 30 s
	HeadersFile string        // as in HTTPConfig
	TokenFile   string        // as in HTTPConfig
	Insecure    bool          // as in HTTPConfig
	TLS         *TLS
	Fence       Fence // as in HTTPConfig
}

// ClaimHTTP is a claim store behind HTTP: a PUT of the whole event that is answered by 2xx, once it is durable. So WebDAV
// does, and object storage whose URL needs no signature of the request.
type ClaimHTTP struct {
	endpoint    *url.URL
	timeout     time.Duration
	credentials *credentials
	links       *links
	retry       *ClaimRetry
	fence       *Fencing
}

// NewClaimHTTP checks the configuration and reads the files that it names.
func NewClaimHTTP(cfg ClaimHTTPConfig, log *slog.Logger, m *Metrics) (*ClaimHTTP, error) {
	u, err := parseEndpoint(cfg.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("claim url: %w", err)
	case u.Scheme == "http" && cfg.TLS != nil:
		return nil, fmt.Errorf("claim url: is http, but tls is configured: write https, or leave tls out")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = httpTimeout
	}
	fence := NewFencing(cfg.Fence)
	c := &ClaimHTTP{
		endpoint: u, timeout: cfg.Timeout, fence: fence, links: &links{tls: cfg.TLS, idle: 1, fence: fence},
		credentials: &credentials{headersFile: cfg.HeadersFile, tokenFile: cfg.TokenFile},
		retry:       NewClaimRetry("claim store "+originOf(u), log, m),
	}
	c.links.plaintext = c.credentials.inPlaintext(u, cfg.Insecure)
	if _, _, err := c.credentials.read(); err != nil {
		return nil, fmt.Errorf("claim store: %w", err)
	}
	if _, err := c.links.pick(true); err != nil {
		return nil, fmt.Errorf("claim store: %w", err)
	}
	return c, nil
}

// Put implements ClaimStore. ref is the URL without its query.
func (c *ClaimHTTP) Put(ctx context.Context, name, contentType string, body []byte) (string, error) {
	to := *c.endpoint
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
func (c *ClaimHTTP) put(ctx context.Context, to *url.URL, contentType string, body []byte) error {
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
	p := &payload{b: body}
	defer p.detach()
	req := (&http.Request{
		Method: http.MethodPut, URL: to, Host: to.Host, Header: header.Clone(), Body: p.reader(), ContentLength: int64(len(body)),
	}).WithContext(ctx)
	req.Header.Set("Content-Type", contentType)
	broken := c.fence.Broken()
	res, err := transport.RoundTrip(req)
	if err != nil && c.fence.Broken() != broken {
		return ErrShut
	}
	if err != nil {
		return WithoutURL(err)
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswerHeader)
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	switch r := judgeAnswer(res, "", hidden); r.kind {
	case httpRefused, httpTooLarge:
		return fmt.Errorf("%w: %s", ErrRefused, r.detail)
	default:
		return fmt.Errorf("it answers %s", r.detail)
	}
}
