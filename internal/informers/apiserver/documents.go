package apiserver

import (
	"context"
	"net/http"
	"strings"
	"sync"
)

// Two documents describe the resources that an API server serves. With a thousand resources they
// are hundreds of kilobytes, and they hardly ever change. If their entity tags are the same, the
// agent does not read them again.

// documentPaths are the paths of the two documents.
func documentPaths() []string { return []string{"/api", "/apis"} }

// Documents has the entity tags of the documents of one discovery. It is safe for concurrent use.
type Documents struct {
	mu   sync.Mutex
	tags map[string]documentTag // by path
}

type documentTag struct{ accept, etag string }

type documentsKey struct{}

// WithDocuments returns a context in which requests for documents note their tags in d.
func WithDocuments(ctx context.Context, d *Documents) context.Context {
	return context.WithValue(ctx, documentsKey{}, d)
}

// tagged is a RoundTripper that notes the tags of documents.
type tagged struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t tagged) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	d, ok := r.Context().Value(documentsKey{}).(*Documents)
	if ok && err == nil && response.StatusCode == http.StatusOK {
		d.note(r, response.Header.Get("ETag"))
	}
	return response, err
}

func (d *Documents) note(r *http.Request, etag string) {
	for _, path := range documentPaths() {
		if etag == "" || !strings.HasSuffix(r.URL.Path, path) {
			continue
		}
		d.mu.Lock()
		if d.tags == nil {
			d.tags = map[string]documentTag{}
		}
		d.tags[path] = documentTag{r.Header.Get("Accept"), etag}
		d.mu.Unlock()
	}
}

func (d *Documents) tag(path string) (documentTag, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tags[path]
	return t, ok
}

// HasSame reports whether the API server has the documents of an earlier discovery. It returns
// false if it does not say.
func (c *Client) HasSame(ctx context.Context, d *Documents) bool {
	for _, path := range documentPaths() {
		if _, ok := d.tag(path); !ok {
			return false
		}
	}
	for _, path := range documentPaths() {
		t, _ := d.tag(path)
		code := 0
		c.asks.Get().AbsPath(path).SetHeader("Accept", t.accept).SetHeader("If-None-Match", t.etag).Do(ctx).
			StatusCode(&code)
		if code != http.StatusNotModified {
			return false
		}
	}
	return true
}
