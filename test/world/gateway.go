package world

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

// Gateway is an HTTP proxy in front of an API server. It injects faults into the watches of one
// resource, which share a connection with others. test/proxy injects those of whole connections.
type Gateway struct {
	url   string
	caPEM []byte

	mu     sync.Mutex
	faults map[string]*watchFault // By the plural of the resource.
}

// watchFault is what happens to the watches of a resource. A channel is closed when the fault
// changes.
type watchFault struct {
	cut, held, buffered bool
	changed             chan struct{}
}

var errCut = errors.New("the gateway has cut the watch")

// StartGateway runs a gateway to the first API server until the test ends.
func StartGateway(t testing.TB, p *Plane) *Gateway {
	t.Helper()
	target, err := url.Parse(p.APIServerURL(0))
	if err != nil {
		t.Fatal(err)
	}
	to, err := rest.TLSConfigFor(p.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: to, ForceAttemptHTTP2: true}
	g := &Gateway{faults: make(map[string]*watchFault)}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // at once
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ModifyResponse: func(r *http.Response) error {
			resource := watchedBy(r.Request)
			if resource != "" {
				r.Body = &gatewayBody{
					ReadCloser: r.Body,
					gateway:    g,
					request:    r.Request,
					resource:   resource,
				}
			}
			return nil
		},
		// A connection to the API server that fails is no response: the client's request fails too.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cut, _, _ := g.state(watchedBy(r))
			if cut {
				panic(http.ErrAbortHandler)
			}
			forward.ServeHTTP(w, r)
		}),
		TLSConfig:         g.certificate(t),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	g.url = "https://" + listener.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("gateway: %v", err)
		}
	})
	t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
		transport.CloseIdleConnections()
	})
	return g
}

// certificate issues the gateway's certificate, by an authority of its own.
func (g *Gateway) certificate(t testing.TB) *tls.Config {
	t.Helper()
	ca, caKey, caPEM, err := Issue("gateway authority", nil, nil, x509.ExtKeyUsageAny)
	var cert *x509.Certificate
	var key *ecdsa.PrivateKey
	if err == nil {
		cert, key, _, err = Issue("gateway", ca, caKey, x509.ExtKeyUsageServerAuth)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.caPEM = caPEM
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}},
	}
}

// Kubeconfig writes the kubeconfig of an agent that reaches the API server through the gateway.
func (g *Gateway) Kubeconfig(t testing.TB, p *Plane) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(file, controlplane.Admin); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range cfg.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = g.url, g.caPEM
	}
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Cut resets the watches of a resource, and each new one, until Cut(plural, false).
func (g *Gateway) Cut(plural string, on bool) {
	g.change(plural, func(f *watchFault) { f.cut = on })
}

// Hold keeps back what the API server sends to the watches of a resource, as a path with large
// buffers does. Hold(plural, false) sends it.
func (g *Gateway) Hold(plural string, on bool) {
	g.change(plural, func(f *watchFault) { f.held = on })
}

// Buffer keeps back what the API server sends to the watches of a resource until it ends them, as a
// proxy that buffers responses does. Buffer(plural, false) sends it with the next frame.
func (g *Gateway) Buffer(plural string, on bool) {
	g.change(plural, func(f *watchFault) { f.buffered = on })
}

func (g *Gateway) buffers(plural string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ofLocked(plural).buffered
}

func (g *Gateway) change(plural string, do func(*watchFault)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.ofLocked(plural)
	do(f)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (g *Gateway) ofLocked(plural string) *watchFault {
	f := g.faults[plural]
	if f == nil {
		f = &watchFault{changed: make(chan struct{})}
		g.faults[plural] = f
	}
	return f
}

// state returns the faults of a resource, and a channel that is closed when they change.
func (g *Gateway) state(plural string) (cut, held bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.ofLocked(plural)
	return f.cut, f.held, f.changed
}

// watchedBy returns the plural of the resource that a request watches; "": it is no watch.
func watchedBy(r *http.Request) string {
	if watch, err := strconv.ParseBool(r.URL.Query().Get("watch")); err != nil || !watch {
		return ""
	}
	return path.Base(r.URL.Path)
}

// gatewayBody is the body of a watch. It is read by one goroutine of the reverse proxy.
type gatewayBody struct {
	io.ReadCloser
	gateway  *Gateway
	request  *http.Request
	resource string

	buffer bytes.Buffer
	ended  error // After the buffer.
}

// Read implements io.Reader.
func (b *gatewayBody) Read(p []byte) (int, error) {
	for b.buffer.Len() == 0 && b.ended == nil {
		n, err := b.receive(p)
		buffers := b.gateway.buffers(b.resource)
		for err == nil && buffers {
			b.buffer.Write(p[:n])
			n, err = b.receive(p)
			buffers = b.gateway.buffers(b.resource)
		}
		if b.buffer.Len() == 0 {
			return n, err
		}
		b.buffer.Write(p[:n])
		b.ended = err
	}
	if b.buffer.Len() > 0 {
		return b.buffer.Read(p)
	}
	return 0, b.ended
}

// receive reads from the API server. A cut also ends a read that waits for it.
func (b *gatewayBody) receive(p []byte) (int, error) {
	_, _, changed := b.gateway.state(b.resource)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-changed:
			}
			var cut bool
			cut, _, changed = b.gateway.state(b.resource)
			if cut {
				_ = b.Close()
				return
			}
		}
	})
	n, err := b.ReadCloser.Read(p)
	close(done)
	wg.Wait()
	for {
		cut, held, changed := b.gateway.state(b.resource)
		switch {
		case cut:
			return 0, errCut
		case !held:
			return n, err
		}
		select {
		case <-changed:
		case <-b.request.Context().Done():
			return 0, b.request.Context().Err()
		}
	}
}
