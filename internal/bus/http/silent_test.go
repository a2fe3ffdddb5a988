package http_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// resumeWithin is the time after the death of a path, or its return, within which delivery resumes.
const resumeWithin = 20 * time.Second

// silentReceiver is a receiver whose path can die silently. The bus has several idle connections.
func silentReceiver(t *testing.T, cfg publishhttp.Config) (*running, *bustest.Proxy) {
	t.Helper()
	connections := 5
	if cfg.Batch > 1 {
		connections = 1 // one request may have all events
	}
	var all sync.WaitGroup
	all.Add(connections)
	var first atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if first.Add(1) <= int64(connections) {
			all.Done()
			all.Wait() // so that each has a connection of its own, except with HTTP/2
		}
	}))
	scheme := "http://"
	if cfg.TLS != nil {
		s.EnableHTTP2, scheme = true, "https://"
		s.StartTLS()
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		cfg.TLS.CAFile = filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(cfg.TLS.CAFile, ca, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	path := bustest.StartProxy(t, s.Listener.Addr().String())
	cfg.URL = scheme + path.Addr()
	r := run(t, cfg)
	publishWithin(t, r, connections, 1, time.Now())
	return r, path
}

// publishWithin publishes a version of several objects, and fails the test unless the receiver has
// all of them within resumeWithin of a moment.
func publishWithin(t *testing.T, r *running, objects, version int, from time.Time) {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), from.Add(resumeWithin))
	defer cancel()
	var all sync.WaitGroup
	for i := range objects {
		all.Go(func() {
			if err := r.Publish(ctx, event(fmt.Sprintf("web-%d", i), version, `{}`)); err != nil {
				t.Errorf("object %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if version > 1 {
		t.Logf("delivery resumed after %s", time.Since(from).Round(100*time.Millisecond))
	}
}

func TestPathThatDiesSilently(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]publishhttp.Config{
		"singles": {},
		"batches": {Batch: 10},
		"HTTP2":   {TLS: &publish.TLS{}},
		// Each retry would use the next idle connection, which is dead too.
		"timeout": {Timeout: yamldoc.Duration{Duration: 4500 * time.Millisecond}, InFlight: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, path := silentReceiver(t, cfg)
			path.Swallow(false)
			publishWithin(t, r, 1, 2, time.Now())
		})
	}
}

func TestPathThatStaysDeadForHalfAMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 40 s")
	}
	t.Parallel()
	for name, cfg := range map[string]publishhttp.Config{"HTTP1": {}, "HTTP2": {TLS: &publish.TLS{}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, path := silentReceiver(t, cfg)
			path.Swallow(true)
			back := time.Now().Add(30 * time.Second)
			heal := time.AfterFunc(time.Until(back), func() { path.Swallow(false) })
			defer heal.Stop()
			publishWithin(t, r, 5, 2, back)
		})
	}
}

// A receiver that needs 15 s keeps its request: its own response ends the event. The copy that was
// sent meanwhile shows that the receiver is slow, so that the next event is sent once.
func TestSlowReceiverIsNotCut(t *testing.T) {
	t.Parallel()
	var requests, ended atomic.Int64
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		n := requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // from then on, the server detects a canceled request
		select {
		case <-time.After(15 * time.Second):
		case <-r.Context().Done():
			if n == 1 {
				t.Error("the first request was canceled")
			}
			ended.Add(1)
		}
	})
	r := run(t, publishhttp.Config{URL: url})
	for v := range 2 {
		if err := r.Publish(t.Context(), event("web-1", v+1, `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("got %d requests, want 3: one copy of the first event, none of the second", n)
	}
	if !strings.Contains(r.log.String(), "no response, sent again on a new connection") ||
		r.metric(t, "kubecdc_publish_retries_total", publish.ReasonTimeout) != 1 {
		t.Error("the copy is not shown")
	}
	wait(t, "the copy ends", func() bool { return ended.Load() == 1 })
}

// A large event takes its time on a slow network. That is progress, so no copy is sent.
func TestLargeEventOnASlowNetworkIsSentOnce(t *testing.T) {
	t.Parallel()
	const size = 24 << 20
	var requests atomic.Int64
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		for range 24 { // 14 s
			<-time.After(600 * time.Millisecond)
			if _, err := io.CopyN(io.Discard, r.Body, size/24); err != nil {
				return
			}
		}
	})
	r := run(t, publishhttp.Config{URL: url})
	if err := r.Publish(t.Context(), event("web-1", 1, strings.Repeat("x", size))); err != nil {
		t.Fatal(err)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
}
