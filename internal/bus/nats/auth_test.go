package nats_test

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
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// operated configures a server by an operator's JWT, with one account that has JetStream, and
// creates users of that account.
type operated struct {
	account  nkeys.KeyPair
	operator *jwt.OperatorClaims
	resolver *server.MemAccResolver
}

func newOperated(tb testing.TB) *operated {
	tb.Helper()
	operator := newKey(tb, nkeys.CreateOperator)
	account := newKey(tb, nkeys.CreateAccount)
	system := newKey(tb, nkeys.CreateAccount)
	o := &operated{
		account:  account,
		operator: jwt.NewOperatorClaims(public(tb, operator)),
		resolver: new(server.MemAccResolver),
	}
	o.operator.SystemAccount = public(tb, system)
	if _, err := o.operator.Encode(operator); err != nil {
		tb.Fatal(err)
	}
	for _, key := range []nkeys.KeyPair{account, system} {
		claims := jwt.NewAccountClaims(public(tb, key))
		if key == account {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
				DiskStorage:   -1,
				MemoryStorage: -1,
				Streams:       -1,
				Consumer:      -1,
			}
		}
		token, err := claims.Encode(operator)
		if err == nil {
			err = o.resolver.Store(public(tb, key), token)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return o
}

func (o *operated) configure(opts *server.Options) {
	opts.TrustedOperators = []*jwt.OperatorClaims{o.operator}
	opts.AccountResolver = o.resolver
	opts.SystemAccount = o.operator.SystemAccount
}

// creds writes a user's file, as nsc does, and returns it with the two secrets in it.
func (o *operated) creds(tb testing.TB, change ...func(*jwt.UserClaims)) (file, token, seed string) {
	tb.Helper()
	user := newKey(tb, nkeys.CreateUser)
	claims := jwt.NewUserClaims(public(tb, user))
	for _, c := range change {
		c(claims)
	}
	token, err := claims.Encode(o.account)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := jwt.FormatUserConfig(token, []byte(seedOf(tb, user)))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b), token, seedOf(tb, user)
}

func newKey(tb testing.TB, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	tb.Helper()
	key, err := create()
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func public(tb testing.TB, key nkeys.KeyPair) string {
	tb.Helper()
	p, err := key.PublicKey()
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func seedOf(tb testing.TB, key nkeys.KeyPair) string {
	tb.Helper()
	s, err := key.Seed()
	if err != nil {
		tb.Fatal(err)
	}
	return string(s)
}

// write replaces a file atomically, as a mounted Secret does.
func write(tb testing.TB, file, content string) {
	tb.Helper()
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		tb.Fatal(err)
	}
}

// way is an authentication method: the configuration of the server, and the file's content with the
// right and a wrong secret.
type way struct {
	name         string
	server       func(*server.Options)
	auth         func(file string) natsconfig.Auth
	right, wrong string
	malformed    string // "": not applicable
	secrets      []string
	advice       string
	unusable     string
}

func ways(t *testing.T) []way {
	t.Helper()
	o, others := newOperated(t), newOperated(t)
	creds, token, seed := o.creds(t)
	foreign, foreignToken, foreignSeed := others.creds(t)
	user, stranger := newKey(t, nkeys.CreateUser), newKey(t, nkeys.CreateUser)
	return []way{
		{
			name: "password", right: "correct-horse", wrong: "battery-staple",
			server:   func(o *server.Options) { o.Username, o.Password = "agent", "correct-horse" },
			auth:     func(f string) natsconfig.Auth { return natsconfig.Auth{User: "agent", PasswordFile: f} },
			secrets:  []string{"correct-horse", "battery-staple"},
			advice:   "the server rejects the credentials for user agent in FILE (bus.nats.auth.passwordFile): correct them, they are read again at each attempt",
			unusable: "bus.nats.auth.passwordFile FILE: ",
		},
		{
			name: "token", right: "open-sesame", wrong: "open-barley",
			server:   func(o *server.Options) { o.Authorization = "open-sesame" },
			auth:     func(f string) natsconfig.Auth { return natsconfig.Auth{TokenFile: f} },
			secrets:  []string{"open-sesame", "open-barley"},
			advice:   "the server rejects the credentials in FILE (bus.nats.auth.tokenFile): correct them, they are read again at each attempt",
			unusable: "bus.nats.auth.tokenFile FILE: ",
		},
		{
			name: "nkey", right: seedOf(t, user), wrong: seedOf(t, stranger), malformed: "SUnotaseed",
			server:   func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public(t, user)}} },
			auth:     func(f string) natsconfig.Auth { return natsconfig.Auth{NKeySeedFile: f} },
			secrets:  []string{seedOf(t, user), seedOf(t, stranger), "SUnotaseed"},
			advice:   "the server rejects the credentials in FILE (bus.nats.auth.nkeySeedFile): correct them, they are read again at each attempt",
			unusable: "bus.nats.auth.nkeySeedFile FILE: ",
		},
		{
			name:      "creds",
			right:     creds,
			wrong:     foreign,
			malformed: "-----BEGIN NATS USER JWT-----\nnotajwt\n------END NATS USER JWT------\n",
			server:    o.configure,
			auth:      func(f string) natsconfig.Auth { return natsconfig.Auth{CredsFile: f} },
			secrets:   []string{token, seed, foreignToken, foreignSeed, "notajwt"},
			advice:    "the server rejects the credentials in FILE (bus.nats.auth.credsFile): correct them, they are read again at each attempt",
			unusable:  "bus.nats.auth.credsFile FILE: ",
		},
	}
}

// The file holds the wrong secret, then none, then the right one, and after another exchange a
// second right one. Nothing is restarted, and no secret is in any log.
func TestCredentialsAreReadAgainAndNeverLogged(t *testing.T) {
	t.Parallel()
	for _, w := range ways(t) {
		t.Run(w.name, func(t *testing.T) {
			s := bustest.StartServer(t, t.TempDir(), -1, w.server)
			file := filepath.Join(t.TempDir(), "secret")
			write(t, file, w.wrong+"\n")
			cfg := bustest.NATSConfig("nats://" + s.Addr().String())
			cfg.Auth = w.auth(file)
			r := bustest.RunNATS(t, cfg)
			attempts := func(n uint64) {
				t.Helper()
				before := connections(t, s)
				bustest.Wait(t, "attempts to connect", func() bool { return connections(t, s) >= before+n })
			}
			attempts(3)
			advice := strings.ReplaceAll(w.advice, "FILE", file)
			bustest.Wait(t, "Ready to say what is wrong", func() bool {
				return strings.Contains(fmt.Sprint(r.Ready()), advice)
			})
			if got := bustest.Lines(r.Log.String(), "cannot reach the bus"); got != 1 ||
				!strings.Contains(r.Log.String(), advice) {
				t.Errorf("got %d lines about the refusal, want 1 with %q:\n%s", got, advice, r.Log)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			bustest.Wait(t, "Ready to name the missing file", func() bool {
				return strings.Contains(fmt.Sprint(r.Ready()), file)
			})
			write(t, file, w.right+"\n")
			if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
				t.Fatal(err)
			}
			if err := r.Ready(); err != nil {
				t.Error(err)
			}
			for _, secret := range w.secrets {
				if strings.Contains(r.Log.String(), secret) {
					t.Errorf("the log holds the secret %s:\n%s", secret, r.Log)
				}
			}
		})
	}
}

func connections(t *testing.T, s *server.Server) uint64 {
	t.Helper()
	v, err := s.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return v.TotalConnections
}

func TestCredentialsThatCannotBeUsedEndRun(t *testing.T) {
	for _, w := range ways(t) {
		dir := t.TempDir()
		for _, c := range []struct{ name, content, want string }{
			{"missing", "", "cannot be read: no such file or directory"},
			{"empty", "\n", "is empty"},
			{"malformed", w.malformed, "contains no "},
		} {
			if c.name == "malformed" && c.content == "" {
				continue
			}
			t.Run(w.name+" "+c.name, func(t *testing.T) {
				file := filepath.Join(dir, c.name)
				if c.name != "missing" {
					write(t, file, c.content)
				}
				cfg := bustest.NATSConfig("nats://127.0.0.1:1")
				cfg.Auth = w.auth(file)
				r := bustest.RunNATS(t, cfg)
				<-r.Ended
				want := strings.ReplaceAll(w.unusable, "FILE", file) + c.want
				if r.Err == nil || !strings.HasPrefix(r.Err.Error(), want) {
					t.Errorf("got  %v\nwant %s", r.Err, want)
				}
				for _, secret := range w.secrets {
					if strings.Contains(fmt.Sprint(r.Err, r.Log), secret) {
						t.Errorf("the secret %s is in the error or the log: %v\n%s", secret, r.Err, r.Log)
					}
				}
			})
		}
	}
	for _, auth := range []natsconfig.Auth{{User: "u"}, {PasswordFile: "/p"}, {TokenFile: "/t", CredsFile: "/c"}} {
		cfg := bustest.NATSConfig("nats://127.0.0.1:1")
		cfg.Auth = auth
		wrong := cfg.Validate(field.NewPath("bus", "nats"), new(driver.Facts))
		if !slices.ContainsFunc(wrong, func(e *field.Error) bool { return e.Field == "bus.nats.auth" }) {
			t.Errorf("%+v: got %v", auth, wrong)
		}
	}
}

func TestServerThatWantsCredentialsWhereThereAreNone(t *testing.T) {
	s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) {
		o.Username = "agent"
		o.Password = "correct-horse"
	})
	cfg := bustest.NATSConfig("nats://" + s.Addr().String())
	cfg.Key = "relays[0].to.nats"
	r := bustest.RunNATS(t, cfg)
	want := "the server requires credentials, or others than those in relays[0].to.nats.url: set relays[0].to.nats.auth"
	bustest.Wait(t, "Ready to say so", func() bool { return strings.Contains(fmt.Sprint(r.Ready()), want) })
}

// A user's JWT that expires ends the connection; by then, the next one is in the file.
func TestCredentialsThatExpireAreExchanged(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	s := bustest.StartServer(t, t.TempDir(), -1, o.configure)
	file := filepath.Join(t.TempDir(), "creds")
	short, _, _ := o.creds(t, func(c *jwt.UserClaims) { c.Expires = time.Now().Add(2 * time.Second).Unix() })
	write(t, file, short)
	cfg := bustest.NATSConfig("nats://" + s.Addr().String())
	cfg.Auth.CredsFile = file
	r := bustest.RunNATS(t, cfg)
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	bustest.Wait(t, "the refusal of the expired ones", func() bool {
		return strings.Contains(fmt.Sprint(r.Ready()), "bus.nats.auth.credsFile")
	})
	long, _, _ := o.creds(t)
	write(t, file, long)
	if err := r.Publish(t.Context(), bustest.Event("web-1", 2, `{}`)); err != nil {
		t.Fatal(err)
	}
}

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(tb testing.TB, name string) *authority {
	tb.Helper()
	a := &authority{}
	a.pem, _ = a.issue(tb, name, nil)
	return a
}

// issue makes a certificate for an address, or the authority's own, with its key.
func (a *authority) issue(tb testing.TB, name string, ip net.IP) (cert, key string) {
	tb.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{
			CommonName: name,
		}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip != nil {
		c.IPAddresses = []net.IP{ip}
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		c.IsCA = true
		parent = c
		signer = k
		a.key = k
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &k.PublicKey, signer)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert == nil {
		a.cert, err = x509.ParseCertificate(der)
		if err != nil {
			tb.Fatal(err)
		}
	}
	b, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		tb.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: b}))
}

// secured is a server whose certificates can be replaced while it runs.
type secured struct {
	config atomic.Pointer[tls.Config]
}

func (s *secured) use(tb testing.TB, server, clients *authority, ip net.IP) {
	tb.Helper()
	cert, key := server.issue(tb, "server", ip)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		tb.Fatal(err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if clients != nil {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		c.ClientCAs.AddCert(clients.cert)
	}
	s.config.Store(c)
}

func (s *secured) configure(o *server.Options) {
	o.TLSTimeout = 5
	o.TLSConfig = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config.Load(), nil },
	}
}

func loopback() net.IP { return net.IPv4(127, 0, 0, 1) }

// Server and client change their certificates and the authorities that they trust, one after the
// other; each new connection uses the files on disk at that time.
func TestCertificatesAreRotated(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	var tlsServer secured
	tlsServer.use(t, first, first, loopback())
	s := bustest.StartServer(t, t.TempDir(), -1, tlsServer.configure)
	p := bustest.StartProxy(t, s.Addr().String())

	dir := t.TempDir()
	files := publish.TLS{
		CAFile:   filepath.Join(dir, "ca.crt"),
		CertFile: filepath.Join(dir, "tls.crt"),
		KeyFile:  filepath.Join(dir, "tls.key"),
	}
	trust := func(a *authority) { write(t, files.CAFile, a.pem) }
	show := func(a *authority) {
		cert, key := a.issue(t, "agent", nil)
		write(t, files.CertFile, cert)
		write(t, files.KeyFile, key)
	}
	trust(first)
	show(first)
	cfg := bustest.NATSConfig(p.URL())
	cfg.TLS = &files
	r := bustest.RunNATS(t, cfg)
	version := 0
	publishes := func() {
		t.Helper()
		version++
		if err := r.Publish(t.Context(), bustest.Event("web-1", version, `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	says := func(want string) {
		t.Helper()
		bustest.Wait(t, "Ready to say "+want, func() bool { return strings.Contains(fmt.Sprint(r.Ready()), want) })
	}
	publishes()

	tlsServer.use(t, second, first, loopback())
	p.Cut()
	says("set it in bus.nats.tls.caFile")
	trust(second)
	publishes()

	tlsServer.use(t, second, second, loopback())
	p.Cut()
	says("bus.nats.tls.certFile")
	show(second)
	publishes()

	if err := os.Remove(files.CAFile); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	says(files.CAFile)
	trust(second)
	publishes()

	tlsServer.use(t, second, second, net.IPv4(127, 0, 0, 9))
	p.Cut()
	says("the server's certificate is for other names")
	tlsServer.use(t, second, second, loopback())
	publishes()
	if got := bustest.Lines(r.Log.String(), "cannot reach the bus"); got != 1 {
		t.Errorf("got %d lines about TLS within a minute, want 1", got)
	}
}

func TestTLSThatDoesNotMatchTheServer(t *testing.T) {
	a := newAuthority(t, "a")
	var tlsServer secured
	tlsServer.use(t, a, a, loopback())
	secure := bustest.StartServer(t, t.TempDir(), -1, tlsServer.configure)
	plain := bustest.StartServer(t, t.TempDir(), -1)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	write(t, ca, a.pem)
	for _, c := range []struct {
		name string
		url  string
		tls  *publish.TLS
		want string
	}{
		{"authority unknown", "nats://" + secure.Addr().String(), nil, "set it in bus.nats.tls.caFile"},
		{"no certificate to show", "nats://" + secure.Addr().String(), &publish.TLS{
			CAFile: ca,
		}, "check bus.nats.tls.certFile and bus.nats.tls.keyFile"},
		{"server without TLS", "nats://" + plain.Addr().String(), &publish.TLS{
			CAFile: ca,
		}, "the server does not offer TLS"},
		{"server without TLS, by URL", "tls://" + plain.Addr().String(), nil, "the server does not offer TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := bustest.NATSConfig(c.url)
			cfg.TLS = c.tls
			r := bustest.RunNATS(t, cfg)
			bustest.Wait(t, "Ready to say what is wrong", func() bool {
				return strings.Contains(fmt.Sprint(r.Ready()), c.want)
			})
			bustest.Wait(t, "the log to say it", func() bool { return strings.Contains(r.Log.String(), c.want) })
		})
	}
	cfg := bustest.NATSConfig("nats://127.0.0.1:1")
	cfg.TLS = &publish.TLS{CAFile: filepath.Join(t.TempDir(), "none")}
	r := bustest.RunNATS(t, cfg)
	<-r.Ended
	if r.Err == nil || !strings.HasPrefix(r.Err.Error(), "bus.nats.tls: read caFile: open "+cfg.TLS.CAFile) {
		t.Errorf("a missing file at the start: got %v", r.Err)
	}
}
