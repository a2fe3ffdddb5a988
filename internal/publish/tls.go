package publish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/check"
)

// pairAttempts bounds how often a certificate and a key that do not belong together are read within one handshake, and
// pairDelay is how long to wait in between.
const (
	pairAttempts = 5
	pairDelay    = 20 * time.Millisecond
)

// TLS names the files of TLS, all PEM. With nothing in it, the system's certificates are trusted and none is shown. A nil
// *TLS is a connection without TLS.
//
// The files may be exchanged at any time. Each new connection reads them again; it never falls back on what it read
// before: a certificate that was withdrawn from the disk is not shown any more.
type TLS struct {
	CAFile   string `yaml:"caFile,omitempty"`   // certificates to trust, instead of the system's
	CertFile string `yaml:"certFile,omitempty"` // with KeyFile: the client's certificate, and those between it and its authority
	KeyFile  string `yaml:"keyFile,omitempty"`
}

// Validate returns what is wrong with the names of the files at path. t may be nil.
func (t *TLS) Validate(path *field.Path) field.ErrorList {
	if t == nil {
		return nil
	}
	list := check.PlainFile(path.Child("caFile"), t.CAFile, "/etc/kubecdc/ca.crt")
	list = append(list, check.PlainFile(path.Child("certFile"), t.CertFile, "/etc/kubecdc/tls.crt")...)
	if t.KeyFile != "" && !check.AbsolutePath.MatchString(t.KeyFile) {
		list = append(list, field.Forbidden(path.Child("keyFile"),
			"must be the absolute path of a file that holds it, such as /etc/kubecdc/tls.key; the secret itself never stands here"))
	}
	return append(list, check.Together(path, "certFile", t.CertFile, "keyFile", t.KeyFile)...)
}

// Summary returns in words how a connection is encrypted, "" without TLS.
func (t *TLS) Summary() string {
	switch {
	case t == nil:
		return ""
	case t.CertFile != "":
		return "TLS with a certificate of its own"
	}
	return "TLS"
}

// WithCA returns t with another file of certificates to trust, if that is not "".
func (t *TLS) WithCA(file string) *TLS {
	if file == "" {
		return t
	}
	var other TLS
	if t != nil {
		other = *t
	}
	other.CAFile = file
	return &other
}

// Config is the configuration of one new connection, or nil, and an error that names the file where one cannot be used.
//
// The certificates to trust are those of this moment, the client's are read in the handshake, so whoever dials calls
// Config each time, or has [TLS.Dialer] do it. To replace the trust inside a Config that is kept would take
// InsecureSkipVerify and a verification of our own, which cannot equal the standard library's: a VerifyConnection never
// learns that it is to check an IP address (ConnectionState.ServerName is empty then).
func (t *TLS) Config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("tls: certFile and keyFile go together: name both or neither")
	}
	roots, err := t.Roots()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if t.CertFile == "" {
		return c, nil
	}
	if _, err := t.pair(context.Background()); err != nil {
		return nil, err
	}
	// Not Certificates: these would be shown only if the server named their authority, and a server that names another
	// one would be told "no certificate" instead of which.
	c.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.pair(r.Context()) }
	return c, nil
}

// Roots reads the certificates to trust; nil are the system's.
func (t *TLS) Roots() (*x509.CertPool, error) {
	if t == nil || t.CAFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls: read caFile: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("tls: caFile %s: no certificate in it: it must hold PEM blocks \"CERTIFICATE\"", t.CAFile)
	}
	return roots, nil
}

// pair reads certificate and key. They are two files: whoever exchanges them does so one after the other, unless a
// symbolic link to their directory is moved, as in a mounted Secret, and even then this may read one before and one
// after. So what does not fit is read again a few times; then the handshake fails, and the next one tries anew.
func (t *TLS) pair(ctx context.Context) (*tls.Certificate, error) {
	for attempt := 1; ; attempt++ {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err == nil {
			return &cert, nil
		}
		if pathErr := new(os.PathError); errors.As(err, &pathErr) { // it names the file itself
			err = fmt.Errorf("tls: read certFile and keyFile: %w", err)
		} else {
			err = &PairError{cert: t.CertFile, key: t.KeyFile, err: err}
		}
		if attempt == pairAttempts {
			return nil, err
		}
		if Sleep(ctx, pairDelay) != nil {
			return nil, err
		}
	}
}

// PairError says that certificate and key were read, but cannot be used.
type PairError struct {
	cert, key string
	err       error
}

func (e *PairError) Error() string {
	return fmt.Sprintf("tls: certFile %s and keyFile %s: %s", e.cert, e.key, e.err)
}

func (e *PairError) Unwrap() error { return e.err }

// Dialer returns a dialler whose connections have shaken hands: dial itself where t is nil. The name to verify is the
// host of the address that is dialled. What it returns is a *tls.Conn.
func (t *TLS) Dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if t == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := t.Config()
		if err != nil {
			return nil, err
		}
		if c.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secured := tls.Client(conn, c)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("tls handshake with %s: %w", addr, err)
		}
		return secured, nil
	}
}
