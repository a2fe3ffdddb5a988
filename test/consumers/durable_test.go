package consumers_test

import (
	"crypto/tls"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
)

// durable is one of the programs of examples with a durable consumer of NATS.
type durable struct {
	language, name string
	marks          func(id, typ string) string // the part of a printed line that identifies its event
}

func printsID(id, _ string) string    { return id }
func printsType(_, typ string) string { return typ }

var durables = []durable{{"go", "service", printsID}, {"go", "plain", printsType}, {"python", "service", printsID}}

func (d durable) String() string { return d.language + "/" + d.name }

// TestServices interrupts the programs with durable consumers, and runs them again: they resume at
// their position.
func TestServices(t *testing.T) {
	t.Parallel()
	for _, d := range durables {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			b := startBus(t)
			d.resumes(t, b, flag(d.language, "server"), b.URL)
		})
	}
}

// TestServicePermissions runs the same programs with the permissions that the guide names for a
// durable consumer, and nothing else.
func TestServicePermissions(t *testing.T) {
	t.Parallel()
	for _, d := range durables {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			limited := &server.User{Username: "audit", Password: "secret", Permissions: durablePermissions(t)}
			b := startBusWith(t, func(o *server.Options) {
				o.Users = []*server.User{{Username: "admin", Password: "secret"}, limited}
			}, nats.UserInfo("admin", "secret"))
			url := strings.Replace(b.URL, "://", "://audit:secret@", 1)
			d.resumes(t, b, flag(d.language, "durable"), "audit", flag(d.language, "server"), url, "kubecdc.>")
		})
	}
}

// durablePermissions are those of a durable consumer in docs/guides/nats.md, as a server reads
// them.
func durablePermissions(t *testing.T) *server.Permissions {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "guides", "nats.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "<!-- a durable consumer -->\n```\n")
	block, _, _ = strings.Cut(block, "```")
	if !found {
		t.Fatal("the guide has no permissions of a durable consumer")
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte("authorization { users = [{ user: audit, password: secret\n"+block+"}] }\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return options.Users[0].Permissions
}

// TestServiceCredentials runs the program in Python with a creds file, against a server with TLS.
func TestServiceCredentials(t *testing.T) {
	t.Parallel()
	dir, authority := t.TempDir(), bustest.NewAuthority(t)
	ca, creds := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "user.creds")
	operator, resolver := issueCreds(t, creds)
	if err := os.WriteFile(ca, authority.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBusWith(t, func(o *server.Options) {
		o.TrustedOperators = []*jwt.OperatorClaims{operator}
		o.AccountResolver = resolver
		o.SystemAccount = operator.SystemAccount
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{
			*authority.Pair(t, "127.0.0.1"),
		}, MinVersion: tls.VersionTLS12}
	}, nats.UserCredentials(creds), nats.RootCAs(ca))
	durable{"python", "service", printsID}.resumes(t, b, "--server", b.URL, "--creds", creds, "--tls-ca", ca)
}

// issueCreds writes the credentials of a user whose account has a JetStream, and returns the
// server's configuration for them.
func issueCreds(t *testing.T, file string) (*jwt.OperatorClaims, *server.MemAccResolver) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		t.Helper()
		pair, err := create()
		must(err)
		public, err := pair.PublicKey()
		must(err)
		return pair, public
	}
	signer, operatorID := key(nkeys.CreateOperator)
	account, accountID := key(nkeys.CreateAccount)
	_, systemID := key(nkeys.CreateAccount)
	operator, resolver := jwt.NewOperatorClaims(operatorID), new(server.MemAccResolver)
	operator.SystemAccount = systemID
	_, err := operator.Encode(signer)
	must(err)
	for _, id := range []string{accountID, systemID} {
		claims := jwt.NewAccountClaims(id)
		if id == accountID {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
				DiskStorage:   -1,
				MemoryStorage: -1,
				Streams:       -1,
				Consumer:      -1,
			}
		}
		token, err := claims.Encode(signer)
		must(err)
		must(resolver.Store(id, token))
	}
	user, userID := key(nkeys.CreateUser)
	token, err := jwt.NewUserClaims(userID).Encode(account)
	must(err)
	seed, err := user.Seed()
	must(err)
	text, err := jwt.FormatUserConfig(token, seed)
	must(err)
	must(os.WriteFile(file, text, 0o600))
	return operator, resolver
}

// resumes runs the program, interrupts it between two rounds of events, and runs it again. The
// second run must continue with the second round.
func (d durable) resumes(t *testing.T, b *bus, args ...string) {
	t.Helper()
	command := append(services[d.language](t, d.name), args...)
	b.createStream(t)
	c, s := oneScope(t)
	created, updated, deleted := c.life(s, "web")
	var mark []string
	for _, r := range c.records {
		var e struct{ ID, Type string }
		if err := json.Unmarshal(r.Body, &e); err != nil {
			t.Fatal(err)
		}
		mark = append(mark, d.marks(e.ID, e.Type))
	}
	b.put(t, created, updated)
	p := start(t, command)
	for _, want := range mark[:2] {
		if got := p.line(t); !strings.Contains(got, want) {
			t.Fatalf("printed %q, want %q", got, want)
		}
	}
	p.interrupt(t)
	b.put(t, deleted)
	p = start(t, command)
	got := p.line(t)
	if strings.Contains(got, mark[1]) { // the interrupt came before its acknowledgement
		got = p.line(t)
	}
	if !strings.Contains(got, mark[2]) {
		t.Fatalf("printed %q after the restart, want %q", got, mark[2])
	}
}
