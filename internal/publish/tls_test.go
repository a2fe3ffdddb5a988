package publish_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// tlsAuthority signs certificates.
type tlsAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newTLSAuthority(tb testing.TB) *tlsAuthority {
	tb.Helper()
	a := new(tlsAuthority)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "an authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.pem, _ = a.sign(tb, template)
	return a
}

// sign makes a certificate, or, for a without one, the authority itself.
func (a *tlsAuthority) sign(tb testing.TB, template *x509.Certificate) (cert, key []byte) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, private.Public(), signer)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert == nil {
		a.key = private
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			tb.Fatal(err)
		}
	}
	b, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})
}

// issue makes a certificate for a name, which is a host of a server as well.
func (a *tlsAuthority) issue(tb testing.TB, name string) (cert, key []byte) {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	return a.sign(tb, template)
}

func (a *tlsAuthority) pair(tb testing.TB, name string) *tls.Certificate {
	tb.Helper()
	cert, key := a.issue(tb, name)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		tb.Fatal(err)
	}
	return &pair
}

// tlsFiles are those of a client.
type tlsFiles struct {
	publish.TLS
	tb testing.TB
}

func newTLSFiles(tb testing.TB) *tlsFiles {
	dir := tb.TempDir()
	return &tlsFiles{tb: tb, TLS: publish.TLS{
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"),
	}}
}

func (f *tlsFiles) write(path string, b []byte) {
	f.tb.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		f.tb.Fatal(err)
	}
}

func (f *tlsFiles) issue(a *tlsAuthority, name string) {
	f.tb.Helper()
	cert, key := a.issue(f.tb, name)
	f.write(f.CertFile, cert)
	f.write(f.KeyFile, key)
}

// tlsReceiver demands certificates; who showed which, and what it shows, can be changed.
type tlsReceiver struct {
	*httptest.Server
	shows  atomic.Pointer[tls.Certificate]
	trusts atomic.Pointer[x509.CertPool]
	client atomic.Value // name in the latest request's certificate
	proto  atomic.Value
}

func serveTLS(tb testing.TB, a *tlsAuthority, name string) *tlsReceiver {
	tb.Helper()
	r := new(tlsReceiver)
	r.set(tb, a, name)
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		r.client.Store(req.TLS.PeerCertificates[0].Subject.CommonName)
		r.proto.Store(req.Proto)
	}))
	r.EnableHTTP2 = true
	r.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{
			Certificates: []tls.Certificate{*r.shows.Load()}, ClientCAs: r.trusts.Load(),
			ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2", "http/1.1"},
		}, nil
	}}
	r.StartTLS()
	tb.Cleanup(r.Close)
	return r
}

func (r *tlsReceiver) set(tb testing.TB, a *tlsAuthority, name string) {
	tb.Helper()
	r.shows.Store(a.pair(tb, name))
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	r.trusts.Store(pool)
}

// Certificates, key and authority are exchanged on disk, and again, while events go out.
func TestHTTPTLSRotation(t *testing.T) {
	first, second := newTLSAuthority(t), newTLSAuthority(t)
	files := newTLSFiles(t)
	files.write(files.CAFile, first.pem)
	files.issue(first, "agent-1")
	s := serveTLS(t, first, "127.0.0.1")
	r := runHTTP(t, publish.HTTPConfig{URL: s.URL, TLS: &files.TLS})
	send := func() error { return r.Publish(t.Context(), event("web-1", 1, `{}`)) }
	expect := func(client string) {
		t.Helper()
		if err := send(); err != nil || s.client.Load() != client {
			t.Fatalf("got %v, error %v, want %s", s.client.Load(), err, client)
		}
	}
	expect("agent-1")
	if s.proto.Load() != "HTTP/2.0" {
		t.Errorf("spoken: %v", s.proto.Load())
	}

	// The client's pair: the next connection shows it.
	files.issue(first, "agent-2")
	s.CloseClientConnections()
	expect("agent-2")

	// The authority: the old one is not trusted any more, at once.
	s.set(t, second, "127.0.0.1")
	s.CloseClientConnections()
	done := make(chan error, 1)
	go func() { done <- send() }()
	wait(t, "it is not trusted", func() bool { return r.metric(t, "kubecdc_publish_retries_total", "tls") > 0 })
	files.write(files.CAFile, second.pem)
	files.issue(second, "agent-3")
	if err := <-done; err != nil || s.client.Load() != "agent-3" {
		t.Fatalf("got %v, error %v", s.client.Load(), err)
	}

	// Half of a rotation: certificate and key do not fit. What was read before is not used.
	cert, key := second.issue(t, "agent-4")
	files.write(files.CertFile, cert)
	s.CloseClientConnections()
	before := r.metric(t, "kubecdc_publish_retries_total", "tls")
	go func() { done <- send() }()
	wait(t, "they do not fit", func() bool { return r.metric(t, "kubecdc_publish_retries_total", "tls") > before })
	files.write(files.KeyFile, key)
	if err := <-done; err != nil || s.client.Load() != "agent-4" {
		t.Fatalf("got %v, error %v", s.client.Load(), err)
	}
	if strings.Contains(r.log.String(), "BEGIN") || !strings.Contains(r.log.String(), "reason=tls") {
		t.Error("the log does not say it, or too much")
	}
}

// What the standard library refuses is refused: another name, another address, another authority.
func TestHTTPTLSIsVerified(t *testing.T) {
	ours, theirs := newTLSAuthority(t), newTLSAuthority(t)
	for name, tc := range map[string]struct {
		server, client *tlsAuthority
		host           string
		want           string
	}{
		"another authority": {theirs, ours, "127.0.0.1", "certificate signed by unknown authority"},
		"another address":   {ours, ours, "127.0.0.2", "certificate is valid for 127.0.0.2, not 127.0.0.1"},
		"a name":            {ours, ours, "bus.example", "because it doesn't contain any IP SANs"},
		"our certificate":   {ours, theirs, "127.0.0.1", "tls: "},
	} {
		t.Run(name, func(t *testing.T) {
			files := newTLSFiles(t)
			files.write(files.CAFile, ours.pem)
			files.issue(tc.client, "agent")
			s := serveTLS(t, ours, "127.0.0.1")
			s.shows.Store(tc.server.pair(t, tc.host))
			r := runHTTP(t, publish.HTTPConfig{URL: s.URL, TLS: &files.TLS})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Publish(ctx, event("web-1", 1, `{}`)) }()
			wait(t, tc.want, func() bool { return strings.Contains(r.log.String(), tc.want) })
			cancel()
			if err := <-done; err == nil || s.client.Load() != nil {
				t.Errorf("got through: %v, error %v", s.client.Load(), err)
			}
		})
	}
}

func TestTLSDialer(t *testing.T) {
	first, second := newTLSAuthority(t), newTLSAuthority(t)
	files := newTLSFiles(t)
	files.write(files.CAFile, first.pem)
	files.issue(first, "agent")
	s := serveTLS(t, first, "127.0.0.1")
	dial := files.Dialer(new(net.Dialer).DialContext)
	try := func() error {
		c, err := dial(t.Context(), "tcp", s.Listener.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := try(); err != nil {
		t.Fatal(err)
	}
	s.set(t, second, "127.0.0.1")
	if err := try(); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got %v", err)
	}
	files.write(files.CAFile, second.pem)
	files.issue(second, "agent")
	if err := try(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files.KeyFile); err != nil {
		t.Fatal(err)
	}
	if err := try(); err == nil || !strings.Contains(err.Error(), files.KeyFile) {
		t.Errorf("got %v", err)
	}
	if c, err := (*publish.TLS)(nil).Config(); c != nil || err != nil {
		t.Errorf("got %v, %v for no TLS", c, err)
	}
}

// Requests look whether the file of certificates to trust has changed. They do not read it.
func TestHTTPCAFileIsNotReadByEachRequest(t *testing.T) {
	ours := newTLSAuthority(t)
	files := newTLSFiles(t)
	const size = 1 << 20
	files.write(files.CAFile, append(ours.pem, bytes.Repeat([]byte("# others\n"), size/9)...))
	files.issue(ours, "agent")
	long := time.Now().Add(-time.Hour) // one that was changed a moment ago is read again, as it may have been changed twice
	if err := os.Chtimes(files.CAFile, long, long); err != nil {
		t.Fatal(err)
	}
	s := serveTLS(t, ours, "127.0.0.1")
	r := runHTTP(t, publish.HTTPConfig{URL: s.URL, TLS: &files.TLS})
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
