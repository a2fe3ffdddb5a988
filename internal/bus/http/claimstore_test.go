package http_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestClaimStore(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cr3t-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var requests []string
	answers := []int{503, 429, 401, 201}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		w.WriteHeader(answers[len(requests)])
		requests = append(requests,
			strings.Join(
				[]string{
					r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body),
				}, " "))
	}))
	defer srv.Close()
	log := new(logBuffer)
	c, err := publishhttp.NewClaimStore(
		publishhttp.ClientConfig{URL: srv.URL + "/a%20b/?sig=pr1v4te", TokenFile: token}, log.Logger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := c.Put(t.Context(), "c0ffee", "application/cloudevents+json", []byte("{}"), nil)
	if err != nil || ref != srv.URL+"/a%20b/c0ffee" {
		t.Fatalf("%s, %v", ref, err)
	}
	put := "PUT /a%20b/c0ffee?sig=pr1v4te Bearer s3cr3t-token application/cloudevents+json {}"
	if d := cmp.Diff([]string{put, put, put, put}, requests); d != "" {
		t.Error(d)
	}
	if strings.Contains(log.String(), "s3cr3t") || strings.Contains(log.String(), "pr1v4te") ||
		lines(log.String(), "status 503") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

func TestClaimStoreRefusals(t *testing.T) {
	status := http.StatusRequestEntityTooLarge
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer srv.Close()
	c, err := publishhttp.NewClaimStore(publishhttp.ClientConfig{URL: srv.URL + "/?sig=pr1v4te"}, discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, status = range []int{413, 422, 409} {
		if _, err := c.Put(t.Context(), "c0ffee", "text/plain", []byte("x"), nil); !errors.Is(err,
			publish.ErrRefused) || strings.Contains(err.Error(), "pr1v4te") {
			t.Errorf("%d: %v", status, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Put(ctx, "c0ffee", "text/plain", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of ctx: %v", err)
	}
	for _, cfg := range []publishhttp.ClientConfig{
		{},
		{URL: "ftp://x"},
		{URL: "http://user:pr1v4te@x"},
		{URL: "http://pr1v4te:%"},
		{URL: "https://x", TokenFile: "/nowhere"},
		{URL: "https://x", TLS: &publish.TLS{CAFile: "/nowhere"}},
	} {
		if _, err := publishhttp.NewClaimStore(cfg, discard, nil); err == nil ||
			strings.Contains(err.Error(), "pr1v4te") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
