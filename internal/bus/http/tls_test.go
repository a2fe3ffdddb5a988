package http_test

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
)

// Certificates, key and authority are replaced on disk, more than once, while events are published.
func TestTLSRotation(t *testing.T) {
	first, second := bustest.NewAuthority(t), bustest.NewAuthority(t)
	files := bustest.NewTLSFiles(t)
	files.Write(files.CAFile, first.PEM)
	files.Issue(first, "agent-1")
	s := bustest.ServeTLS(t, first, "127.0.0.1")
	r := run(t, publishhttp.Config{URL: s.URL, TLS: &files.TLS})
	send := func() error { return r.Publish(t.Context(), event("web-1", 1, `{}`)) }
	expect := func(client string) {
		t.Helper()
		if err := send(); err != nil || s.Client.Load() != client {
			t.Fatalf("got %v, error %v, want %s", s.Client.Load(), err, client)
		}
	}
	expect("agent-1")
	if s.Proto.Load() != "HTTP/2.0" {
		t.Errorf("spoken: %v", s.Proto.Load())
	}

	// The client's pair: the next connection uses it.
	files.Issue(first, "agent-2")
	s.CloseClientConnections()
	expect("agent-2")

	// The authority: the old one is no longer trusted, immediately.
	s.Set(t, second, "127.0.0.1")
	s.CloseClientConnections()
	done := make(chan error, 1)
	go func() { done <- send() }()
	wait(t, "it is not trusted", func() bool { return r.metric(t, "kubecdc_publish_retries_total", "tls") > 0 })
	files.Write(files.CAFile, second.PEM)
	files.Issue(second, "agent-3")
	if err := <-done; err != nil || s.Client.Load() != "agent-3" {
		t.Fatalf("got %v, error %v", s.Client.Load(), err)
	}

	// Half of a rotation: certificate and key do not match. The earlier pair is not used.
	cert, key := second.Issue(t, "agent-4")
	files.Write(files.CertFile, cert)
	s.CloseClientConnections()
	before := r.metric(t, "kubecdc_publish_retries_total", "tls")
	go func() { done <- send() }()
	wait(t, "they do not fit", func() bool { return r.metric(t, "kubecdc_publish_retries_total", "tls") > before })
	files.Write(files.KeyFile, key)
	if err := <-done; err != nil || s.Client.Load() != "agent-4" {
		t.Fatalf("got %v, error %v", s.Client.Load(), err)
	}
	if strings.Contains(r.log.String(), "BEGIN") || !strings.Contains(r.log.String(), "reason=tls") {
		t.Error("the log does not say it, or too much")
	}
}

// The client refuses a server with another name, another address or another authority, like the
// standard library.
func TestTLSIsVerified(t *testing.T) {
	ours, theirs := bustest.NewAuthority(t), bustest.NewAuthority(t)
	for name, tc := range map[string]struct {
		server, client *bustest.Authority
		host           string
		want           string
	}{
		"another authority": {theirs, ours, "127.0.0.1", "certificate signed by unknown authority"},
		"another address":   {ours, ours, "127.0.0.2", "certificate is valid for 127.0.0.2, not 127.0.0.1"},
		"a name":            {ours, ours, "bus.example", "because it doesn't contain any IP SANs"},
		"our certificate":   {ours, theirs, "127.0.0.1", "tls: "},
	} {
		t.Run(name, func(t *testing.T) {
			files := bustest.NewTLSFiles(t)
			files.Write(files.CAFile, ours.PEM)
			files.Issue(tc.client, "agent")
			s := bustest.ServeTLS(t, ours, "127.0.0.1")
			s.Shows.Store(tc.server.Pair(t, tc.host))
			r := run(t, publishhttp.Config{URL: s.URL, TLS: &files.TLS})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Publish(ctx, event("web-1", 1, `{}`)) }()
			wait(t, tc.want, func() bool { return strings.Contains(r.log.String(), tc.want) })
			cancel()
			if err := <-done; err == nil || s.Client.Load() != nil {
				t.Errorf("got through: %v, error %v", s.Client.Load(), err)
			}
		})
	}
}

// Requests check whether the file of trusted certificates has changed. They do not read it.
func TestCAFileIsNotReadByEachRequest(t *testing.T) {
	ours := bustest.NewAuthority(t)
	files := bustest.NewTLSFiles(t)
	const size = 1 << 20
	files.Write(files.CAFile, append(ours.PEM, bytes.Repeat([]byte("# others\n"), size/9)...))
	files.Issue(ours, "agent")
	long := time.Now().Add(-time.Hour) // a file that has changed just now is read again, as it may have changed twice
	if err := os.Chtimes(files.CAFile, long, long); err != nil {
		t.Fatal(err)
	}
	s := bustest.ServeTLS(t, ours, "127.0.0.1")
	r := run(t, publishhttp.Config{URL: s.URL, TLS: &files.TLS})
	publishOne := func() {
		if err := r.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	publishOne()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const requests = 50
	for range requests {
		publishOne()
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > requests*size/2 {
		t.Errorf("%d requests have allocated %d bytes, with a caFile of %d", requests, got, size)
	}
}
