package loopback

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"time"
)

// newCertificate returns a certificate for this machine, and as PEM that of the authority that has
// signed it. They are two: some clients (rustls) refuse a server whose certificate is an authority.
// The key of the authority is not kept.
func newCertificate(now time.Time) (_ tls.Certificate, authority []byte, err error) {
	authorityKey, err := newKey()
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	signer := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubecdc authority"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	rawSigner, err := x509.CreateCertificate(rand.Reader, signer, signer, authorityKey.Public(), authorityKey)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	signer, err = x509.ParseCertificate(rawSigner)
	if err != nil { // with the id of its key, which the leaf names
		return tls.Certificate{}, nil, err
	}
	key, err := newKey()
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubecdc"},
		NotBefore:             signer.NotBefore,
		NotAfter:              signer.NotAfter,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	rawLeaf, err := x509.CreateCertificate(rand.Reader, leaf, signer, key.Public(), authorityKey)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rawSigner})
	return tls.Certificate{Certificate: [][]byte{rawLeaf}, PrivateKey: key}, authority, nil
}

func newKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }
