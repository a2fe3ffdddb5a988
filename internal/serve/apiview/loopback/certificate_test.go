package loopback

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Clients accept the certificate for each name of this machine. Strict ones refuse an authority as
// the certificate of a server.
func TestCertificate(t *testing.T) {
	now := time.Now()
	certificate, authority, err := newCertificate(now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if leaf.IsCA || leaf.KeyUsage&x509.KeyUsageCertSign != 0 || string(leaf.AuthorityKeyId) == "" {
		t.Errorf("the server has the certificate of an authority, or names none: %+v", leaf)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatal("no authority")
	}
	for _, name := range []string{"127.0.0.1", "::1", "localhost"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "example.com"}); err == nil {
		t.Error("another name is accepted")
	}
}

// OpenSSL checks it by the rules of RFC 5280.
func TestOpenSSLAcceptsCertificate(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	certificate, authority, err := newCertificate(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ca, leaf := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "leaf.pem")
	raw := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	for name, text := range map[string][]byte{ca: authority, leaf: raw} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	verify := exec.CommandContext(t.Context(), openssl, "verify", "-x509_strict", "-purpose", "sslserver",
		"-verify_hostname", "localhost", "-CAfile", ca, leaf)
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
