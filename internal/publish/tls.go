package publish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/pause"
)

// pairAttempts bounds the reads of a certificate and key that do not match in one handshake;
// pairDelay is the pause between reads.
const (
	pairAttempts = 5
	pairDelay    = 20 * time.Millisecond
)

// TLS names the files of TLS, all PEM. An empty TLS trusts the system's certificates and presents
// none. A nil *TLS means no TLS.
//
// The files may be replaced at any time. Each new connection reads them again, and never falls back
// to earlier contents: a certificate that was removed from the disk is no longer presented.
type TLS struct {
	CAFile   string `yaml:"caFile,omitempty"`   // certificates to trust, instead of the system's
	CertFile string `yaml:"certFile,omitempty"` // with KeyFile: the client's certificate and its intermediates
	KeyFile  string `yaml:"keyFile,omitempty"`
}

// Validate returns the errors in the file names at path. t may be nil.
func (t *TLS) Validate(path *field.Path) field.ErrorList {
	if t == nil {
		return nil
	}
	list := check.PlainFile(path.Child("caFile"), t.CAFile, "/etc/kubecdc/ca.crt")
	list = append(list, check.PlainFile(path.Child("certFile"), t.CertFile, "/etc/kubecdc/tls.crt")...)
	list = append(list, check.If(t.KeyFile != "" && !check.AbsolutePath.MatchString(t.KeyFile),
		field.Forbidden(path.Child("keyFile"),
			"must be the absolute path of a file that holds it, such as /etc/kubecdc/tls.key; the secret itself does not belong here"))...)
	return append(list, check.Together(path, "certFile", t.CertFile, "keyFile", t.KeyFile)...)
}

// Summary describes the encryption of a connection; "" without TLS.
func (t *TLS) Summary() string {
	switch {
	case t == nil:
		return ""
	case t.CertFile != "":
		return "TLS with a client certificate"
	}
	return "TLS"
}

// WithCA returns t with file as the certificates to trust, unless file is "".
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

// Config returns the configuration of one new connection, nil for a nil t. Its error names the file
// that cannot be used.
//
// The trusted certificates are read now, the client's in the handshake. So the caller must call
// Config for each dial, or use [TLS.Dialer]. To replace the trust in a stored Config would need
// InsecureSkipVerify and our own verification. That cannot match the standard library's:
// VerifyConnection does not get an IP address to check (ConnectionState.ServerName is empty then).
func (t *TLS) Config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("tls: set both certFile and keyFile, or neither")
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
	// Not Certificates: these are presented only if the server names their authority. A server that
	// names another one would then report "no certificate" instead of the certificate that it
	// rejects.
	c.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return t.pair(r.Context())
	}
	return c, nil
}

// Roots reads the certificates to trust; nil means the system's.
func (t *TLS) Roots() (*x509.CertPool, error) {
	if t == nil || t.CAFile == "" {
		return nil, nil
	}
	b, err := ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls: read caFile: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(b) {
		return nil,
			fmt.Errorf("tls: caFile %s: contains no certificate: it must have PEM blocks \"CERTIFICATE\"", t.CAFile)
	}
	return roots, nil
}

// pair reads certificate and key. A replacement of the two files is not atomic; even if it moves a
// symbolic link to their directory (a mounted Secret), this may read one file before and one after
// it. So pair reads a mismatch again a few times; then the handshake fails, and the next handshake
// retries.
func (t *TLS) pair(ctx context.Context) (*tls.Certificate, error) {
	for attempt := 1; ; attempt++ {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err == nil {
			return &cert, nil
		}
		if pathErr := new(os.PathError); errors.As(err, &pathErr) { // it names the file itself
			err = fmt.Errorf("tls: read certFile and keyFile: %w", err)
		} else {
			err = PairError{fmt.Errorf("tls: certFile %s and keyFile %s: %w", t.CertFile, t.KeyFile, err)}
		}
		if attempt == pairAttempts {
			return nil, err
		}
		if pause.For(ctx, pairDelay) != nil {
			return nil, err
		}
	}
}

// PairError means that certificate and key were read, but cannot be used.
type PairError struct{ error }

// Dialer returns a dialler of *tls.Conn that have completed the handshake, or dial itself if t is
// nil. It verifies the host of the dialled address.
func (t *TLS) Dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(
	ctx context.Context, network, addr string,
) (net.Conn, error) {
	if t == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := t.Config()
		if err != nil {
			return nil, err
		}
		c.ServerName, _, err = net.SplitHostPort(addr)
		if err != nil {
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

// ErrPlaintext means that a password, a token or a client secret would have left this machine
// unencrypted.
var ErrPlaintext = errors.New(
	"the password or token would be sent unencrypted: use TLS, or set insecure: true beside it")

// maxFile limits a file of secrets or certificates, in bytes. The bundle of all public authorities
// has a tenth of that.
const maxFile = 4 << 20

// ReadFile reads a file of secrets or certificates, which may be the wrong one: a disk image, or a
// device that never ends.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = &os.PathError{Op: "read", Path: path, Err: fmt.Errorf("is larger than %d MiB", maxFile>>20)}
	}
	return data, err
}

// ReadSecret reads a file with one secret, without final line ends. Errors contain only the file's
// name.
func ReadSecret(what, file string) (string, error) {
	b, err := ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	secret := strings.TrimRight(string(b), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("read %s: %s is empty", what, file)
	}
	return secret, nil
}

// dialFunc has the type of net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// LoopbackOnly wraps dial for connections that carry unencrypted secrets: it closes those to other
// machines before any write. A check of the name is not enough: localhost may resolve to any
// address, and servers name others of their cluster.
func LoopbackOnly(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := OnLoopback(conn, addr); err != nil {
			return nil, err
		}
		return conn, nil
	}
}

// isLocal reports whether an address is on the loopback interface. Tests replace it, because they
// never connect to another machine.
var isLocal = net.IP.IsLoopback //nolint:gochecknoglobals // tests replace it

// OnLoopback closes a connection that leaves this machine, and returns ErrPlaintext for it.
func OnLoopback(conn net.Conn, addr string) error {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err == nil && isLocal(net.ParseIP(host)) {
		return nil
	}
	_ = conn.Close()
	return fmt.Errorf("%s: %w", addr, ErrPlaintext)
}
