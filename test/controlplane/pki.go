package controlplane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/csv"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// pki has the paths of the key material, and the CA for clients in this process. One CA signs
// everything; it and its key are also used by the controller manager for
// CertificateSigningRequests.
type pki struct {
	caCert, caKey           string
	servingCert, servingKey string
	serviceAccountKey       string
	caPEM                   []byte

	client *http.Client // Trusts the CA. Keeps no connections, because each request may be for a new process.
}

func writePKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	p := &pki{
		caCert:            filepath.Join(dir, "ca.crt"),
		caKey:             filepath.Join(dir, "ca.key"),
		servingCert:       filepath.Join(dir, "apiserver.crt"),
		servingKey:        filepath.Join(dir, "apiserver.key"),
		serviceAccountKey: filepath.Join(dir, "service-account.key"),
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kubecdc-test-ca"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caKey, err := writeKey(p.caKey)
	if err != nil {
		return nil, err
	}
	p.caPEM, err = writeCert(p.caCert, ca, ca, caKey, caKey)
	if err != nil {
		return nil, err
	}
	serving := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    ca.NotBefore,
		NotAfter:     ca.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(firstServiceIP)},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		},
	}
	servingKey, err := writeKey(p.servingKey)
	if err != nil {
		return nil, err
	}
	if _, err := writeCert(p.servingCert, serving, ca, servingKey, caKey); err != nil {
		return nil, err
	}
	if _, err := writeKey(p.serviceAccountKey); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.caPEM)
	p.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true},
	}
	return p, nil
}

func writeKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", filepath.Base(path), err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", filepath.Base(path), err)
	}
	if err := writePEM(path, "EC PRIVATE KEY", der); err != nil {
		return nil, err
	}
	return key, nil
}

func writeCert(path string, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", filepath.Base(path), err)
	}
	if err := writePEM(path, "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	return nil
}

// Users of every control plane.
const (
	// Admin may do everything (group system:masters) and is exempt from priority and fairness.
	Admin = "admin"
	// Restricted is in no group but system:authenticated: it may use discovery and nothing else
	// until a test binds a role to it.
	Restricted = "restricted"

	// controllerManagerUser has the usual name of the component, but all rights. The role of that
	// name is for a controller manager with a service account per controller, which takes seconds
	// longer to start.
	controllerManagerUser = "system:kube-controller-manager"
)

// User is a name and its groups in addition to system:authenticated.
type User struct {
	Name   string
	Groups []string
}

type userToken struct{ name, token string }

// writeTokens writes the file for --token-auth-file: token, name, uid and the groups in one field.
func writeTokens(path string, users []User) ([]userToken, error) {
	users = append([]User{
		{Name: Admin, Groups: []string{"system:masters"}},
		{Name: controllerManagerUser, Groups: []string{"system:masters"}},
		{Name: Restricted},
	}, users...)
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	var tokens []userToken
	for _, u := range users {
		token := rand.Text()
		tokens = append(tokens, userToken{name: u.Name, token: token})
		record := []string{token, u.Name, u.Name, strings.Join(u.Groups, ",")}
		if len(u.Groups) == 0 {
			record = record[:3]
		}
		if err := w.Write(record); err != nil {
			return nil, fmt.Errorf("tokens: %w", err)
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return tokens, nil
}
