package bustest

import (
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte
}

// NewAuthority returns a new authority.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := new(Authority)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "an authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	a.PEM, _ = a.sign(tb, template)
	return a
}

// sign makes a certificate, or, for a without one, the authority itself.
func (a *Authority) sign(tb testing.TB, template *x509.Certificate) (cert, key []byte) {
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
		a.cert, err = x509.ParseCertificate(der)
		if err != nil {
			tb.Fatal(err)
		}
	}
	b, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{
		Type:  "PRIVATE KEY",
		Bytes: b,
	})
}

// Issue makes a certificate for a name, which is a host of a server as well.
func (a *Authority) Issue(tb testing.TB, name string) (cert, key []byte) {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	return a.sign(tb, template)
}

// Pair is Issue for a server in this process.
func (a *Authority) Pair(tb testing.TB, name string) *tls.Certificate {
	tb.Helper()
	cert, key := a.Issue(tb, name)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		tb.Fatal(err)
	}
	return &pair
}

// TLSFiles are those of a client.
type TLSFiles struct {
	publish.TLS
	tb testing.TB
}

// NewTLSFiles returns the names of files that do not exist yet.
func NewTLSFiles(tb testing.TB) *TLSFiles {
	dir := tb.TempDir()
	return &TLSFiles{tb: tb, TLS: publish.TLS{
		CAFile:   filepath.Join(dir, "ca.pem"),
		CertFile: filepath.Join(dir, "cert.pem"),
		KeyFile:  filepath.Join(dir, "key.pem"),
	}}
}

func (f *TLSFiles) Write(path string, b []byte) {
	f.tb.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		f.tb.Fatal(err)
	}
}

// Issue writes a certificate for a name, and its key.
func (f *TLSFiles) Issue(a *Authority, name string) {
	f.tb.Helper()
	cert, key := a.Issue(f.tb, name)
	f.Write(f.CertFile, cert)
	f.Write(f.KeyFile, key)
}

// TLSReceiver demands client certificates. A test may change the certificate that it shows, and the
// authorities that it trusts.
type TLSReceiver struct {
	*httptest.Server
	Shows  atomic.Pointer[tls.Certificate]
	Trusts atomic.Pointer[x509.CertPool]
	Client atomic.Value // name in the latest request's certificate
	Proto  atomic.Value
}

// ServeTLS starts a receiver whose certificate is for name. It trusts the same authority.
func ServeTLS(tb testing.TB, a *Authority, name string) *TLSReceiver {
	tb.Helper()
	r := new(TLSReceiver)
	r.Set(tb, a, name)
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		r.Client.Store(req.TLS.PeerCertificates[0].Subject.CommonName)
		r.Proto.Store(req.Proto)
	}))
	r.EnableHTTP2 = true
	r.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{
			Certificates: []tls.Certificate{*r.Shows.Load()},
			ClientCAs:    r.Trusts.Load(),
			ClientAuth:   tls.RequireAndVerifyClientCert,
			NextProtos:   []string{"h2", "http/1.1"},
		}, nil
	}}
	r.StartTLS()
	tb.Cleanup(r.Close)
	return r
}

// Set exchanges the certificate and the authority.
func (r *TLSReceiver) Set(tb testing.TB, a *Authority, name string) {
	tb.Helper()
	r.Shows.Store(a.Pair(tb, name))
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	r.Trusts.Store(pool)
}
