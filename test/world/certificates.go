package world

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Certificates has the certificates of a server and of its client. The authority that signs them
// changes with each rotation.
type Certificates struct {
	CAFile, CertFile, KeyFile string // For the client.

	server     atomic.Pointer[tls.Config]
	Generation atomic.Int64
	Handshakes atomic.Int64 // Handshakes with certificates of the last generation.
}

// NewCertificates issues the first generation.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	dir := t.TempDir()
	c := &Certificates{
		CAFile:   filepath.Join(dir, "ca.crt"),
		CertFile: filepath.Join(dir, "client.crt"),
		KeyFile:  filepath.Join(dir, "client.key"),
	}
	if err := c.Rotate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// YAML returns the setting tls of the agent's configuration.
func (c *Certificates) YAML() string {
	return fmt.Sprintf("tls: {caFile: %q, certFile: %q, keyFile: %q}", c.CAFile, c.CertFile, c.KeyFile)
}

// Config returns the server's configuration. Each handshake uses the certificates of the last
// rotation.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Some servers require a certificate here.
		Certificates:       c.server.Load().Certificates,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.server.Load(), nil },
	}
}

// Rotate creates a new authority and new certificates for both sides. Certificates of the previous
// authority become invalid.
func (c *Certificates) Rotate() error {
	ca, caKey, caPEM, err := Issue("authority", nil, nil, x509.ExtKeyUsageAny)
	if err != nil {
		return err
	}
	server, serverKey, _, err := Issue("server", ca, caKey, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return err
	}
	_, clientKey, clientPEM, err := Issue("kubecdc", ca, caKey, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return err
	}
	clientKeyPEM, err := keyPEM(clientKey)
	if err != nil {
		return err
	}
	// Each file is replaced atomically, one after the other. In between, the files of a client may
	// not match.
	for _, f := range []struct {
		name string
		text []byte
	}{{c.CAFile, caPEM}, {c.CertFile, clientPEM}, {c.KeyFile, clientKeyPEM}} {
		if err := os.WriteFile(f.name+".new", f.text, 0o600); err != nil {
			return err
		}
		if err := os.Rename(f.name+".new", f.name); err != nil {
			return err
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	mine := c.Generation.Add(1)
	c.Handshakes.Store(0)
	c.server.Store(&tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{server.Raw}, PrivateKey: serverKey, Leaf: server}},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		NextProtos:   []string{"h2", "http/1.1"},
		VerifyConnection: func(tls.ConnectionState) error {
			if mine == c.Generation.Load() {
				c.Handshakes.Add(1)
			}
			return nil
		},
	})
	return nil
}

// Issue creates a certificate for 127.0.0.1 or, without a parent, a self-signed one of an
// authority.
func Issue(
	name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, usage x509.ExtKeyUsage,
) (*x509.Certificate, *ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name, SerialNumber: serial.String()},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if parent == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		parent, parentKey = template, key
	} else {
		template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
