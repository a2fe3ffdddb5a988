package e2e_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// rawTraces is an OpenTelemetry collector that stores the requests.
type rawTraces struct {
	*httptest.Server
	mu  sync.Mutex
	all bytes.Buffer
}

func startRawTraces(t *testing.T) *rawTraces {
	t.Helper()
	r := &rawTraces{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body := io.Reader(req.Body)
		if req.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(req.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = req.Header.Write(&r.all) // Into memory.
		if _, err := io.Copy(&r.all, body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *rawTraces) bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.all.Bytes())
}
