package http

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/claim"
)

// ClaimStore stores claims with HTTP: a PUT of the whole event, which the server answers with 2xx after the event is durable. WebDAV works
// this way, and object storage whose URL needs no signature of the request.
type ClaimStore struct {
	*client
	retry *claim.Retry
}

// NewClaimStore returns a claim store and reads the files that cfg names. The claim's name is appended to the URL's path; the URL's query
// is part of each request, but of no reference.
func NewClaimStore(cfg ClientConfig, log *slog.Logger, m *publish.Metrics) (*ClaimStore, error) {
	c, err := newClient(cfg, 1, 0)
	if err != nil {
		return nil, fmt.Errorf("claim store: %w", err)
	}
	return &ClaimStore{client: c, retry: claim.NewRetry("claim store "+c.origin, log, m)}, nil
}

// Put implements publish.ClaimStore. ref is the URL without its query.
func (c *ClaimStore) Put(ctx context.Context, name, contentType string, body []byte, retried func(reason string)) (string, error) {
	to := *c.url
	to.Path = strings.TrimSuffix(to.Path, "/") + "/" + name
	if to.RawPath != "" {
		to.RawPath = strings.TrimSuffix(to.RawPath, "/") + "/" + name
	}
	if err := c.retry.Do(ctx, name, retried, func(ctx context.Context) error { return c.put(ctx, &to, contentType, body) }); err != nil {
		return "", err
	}
	to.RawQuery = ""
	return to.String(), nil
}

// put sends one request on a separate connection: claims are rare, and no connection stays open for them.
func (c *ClaimStore) put(ctx context.Context, to *url.URL, contentType string, body []byte) error {
	if err := c.fence.Pass(ctx); err != nil {
		return err
	}
	r := &request{method: http.MethodPut, url: to, contentType: contentType, own: true}
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
