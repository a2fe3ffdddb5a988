package feed

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
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// URL returns the URL of the API server.
func (s *Server) URL() string { return s.url }

// ControlURL returns the URL of POST /start?updates=M[&rate=R] and GET /status, always by plain
// HTTP.
func (s *Server) ControlURL() string { return "http://" + s.control.Addr().String() }

// CA returns the certificate to trust, in PEM; nil over plain HTTP.
func (s *Server) CA() []byte { return s.ca }

// Token returns the bearer token to send; empty over plain HTTP.
func (s *Server) Token() string { return s.token }

// History returns the history of the server, for tests.
func (s *Server) History() *History { return s.history }

// Kubeconfig is all of it in a file's form.
func (s *Server) Kubeconfig() ([]byte, error) {
	config := api.NewConfig()
	config.Clusters["feed"] = &api.Cluster{Server: s.url, CertificateAuthorityData: s.ca}
	config.AuthInfos["feed"] = &api.AuthInfo{Token: s.token}
	config.Contexts["feed"] = &api.Context{Cluster: "feed", AuthInfo: "feed"}
	config.CurrentContext = "feed"
	return clientcmd.Write(*config)
}

// credentials creates a certificate authority, a server certificate for 127.0.0.1 and a token. The
// authority's key is not kept.
func credentials() (ca []byte, server *tls.Certificate, token string, err error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, "", err
	}
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "bench feed CA"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey,
		authorityKey)
	if err != nil {
		return nil, nil, "", fmt.Errorf("certificate authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, "", err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "bench feed"},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, authorityKey)
	if err != nil {
		return nil, nil, "", fmt.Errorf("server certificate: %w", err)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER})
	return ca, &tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key}, rand.Text(), nil
}
