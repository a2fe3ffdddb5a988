package main

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
)

func publishOne(t *testing.T, url string, options ...nats.Option) {
	t.Helper()
	js := connect(t, url, options...)
	defer js.Conn().Close()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "CHANGES", Subjects: []string{
		"kubecdc.>",
	}}); err != nil {
		t.Fatal(err)
	}
	m := &nats.Msg{Subject: "kubecdc.c.object.core.pods.shop.web", Header: nats.Header{"content-type": {
		"application/cloudevents+json",
	}}, Data: podRecord(1)}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// expectTail runs it to the end of the stream. want "": it shows the record; else what it says is
// wrong.
func expectTail(t *testing.T, want string, code int, args ...string) {
	t.Helper()
	var out, complaints bytes.Buffer
	got := run(t.Context(), append([]string{"tail", "--no-follow"}, args...), &out, &complaints)
	switch {
	case got != code:
		t.Errorf("%q: exit code %d, want %d: %s", args, got, code, complaints.String())
	case want == "" && shownNames(out.String()) != names(1, 1):
		t.Errorf("%q: got %s%s", args, out.String(), complaints.String())
	case !strings.Contains(complaints.String(), want):
		t.Errorf("%q: got %s, want %s", args, complaints.String(), want)
	}
	for _, secret := range []string{"correct-horse", "battery-staple"} {
		if strings.Contains(complaints.String(), secret) {
			t.Errorf("%q: the secret is in: %s", args, complaints.String())
		}
	}
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestTailReadsWithTheConfigurationsCredentials(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	address := startJetStream(t, &server.Options{
		Username: "reader", Password: "correct-horse", TLSTimeout: 5,
		TLSConfig: &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12},
	})
	dir := t.TempDir()
	ca := writeFile(t, filepath.Join(dir, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: web.Certificate().Raw,
	})))
	publishOne(t, "nats://reader:correct-horse@"+address, nats.RootCAs(ca))

	password := writeFile(t, filepath.Join(dir, "password"), "correct-horse\n")
	file := writeFile(t, filepath.Join(dir, "kubecdc.yaml"), fmt.Sprintf(`apiVersion: kubecdc.dev/v1
bus:
  nats:
    url: nats://%s
    stream: {name: CHANGES}
    auth: {user: reader, passwordFile: %s}
    tls: {caFile: %s}
`, address, password, ca))
	bus := "nats://" + address
	expectTail(t, "", exitOK, "--config", file)
	expectTail(t, "", exitOK, "--config", file, "--bus", bus, "--stream", "CHANGES")
	expectTail(t, "no stream OTHER", exitFailed, "--config", file, "--stream", "OTHER")
	expectTail(t, "Set credentials: --creds FILE, or --config FILE", exitFailed, "--bus", bus, "--tls-ca", ca)
	expectTail(t, "certificate signed by unknown authority", exitFailed, "--bus", bus)
	writeFile(t, password, "battery-staple")
	expectTail(t, "The server rejects the credentials that bus.nats.auth in "+file+" names", exitFailed, "--config",
		file)
	if err := os.Remove(password); err != nil {
		t.Fatal(err)
	}
	expectTail(t, "bus.nats.auth.passwordFile "+password+": cannot be read", exitFailed, "--config", file)
	expectTail(t, filepath.Join(dir, "none.creds")+": cannot be read", exitFailed, "--bus", bus, "--creds",
		filepath.Join(dir, "none.creds"))
	expectTail(t, "the configured bus keeps no records", exitUsage, "--config",
		writeFile(t, filepath.Join(dir, "stdout.yaml"), "apiVersion: kubecdc.dev/v1\nbus: {stdout: {}}\n"))
}

func TestTailReadsWithCreds(t *testing.T) {
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
	operator, operatorID := key(nkeys.CreateOperator)
	account, accountID := key(nkeys.CreateAccount)
	_, systemID := key(nkeys.CreateAccount)
	trusted := jwt.NewOperatorClaims(operatorID)
	trusted.SystemAccount = systemID
	_, err := trusted.Encode(operator)
	must(err)
	resolver := new(server.MemAccResolver)
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
		token, err := claims.Encode(operator)
		must(err)
		must(resolver.Store(id, token))
	}
	creds := func(name string, account nkeys.KeyPair) string {
		user, userID := key(nkeys.CreateUser)
		token, err := jwt.NewUserClaims(userID).Encode(account)
		must(err)
		seed, err := user.Seed()
		must(err)
		b, err := jwt.FormatUserConfig(token, seed)
		must(err)
		return writeFile(t, filepath.Join(t.TempDir(), name), string(b))
	}
	address := startJetStream(t, &server.Options{
		TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: resolver, SystemAccount: systemID,
	})
	known := creds("reader.creds", account)
	publishOne(t, "nats://"+address, nats.UserCredentials(known))
	bus := []string{"--bus", "nats://" + address, "--stream", "CHANGES", "--creds"}
	expectTail(t, "", exitOK, append(bus, known)...)
	stranger, _ := key(nkeys.CreateAccount)
	foreign := creds("foreign.creds", stranger)
	expectTail(t, "The server rejects the credentials in "+foreign+" (--creds)", exitFailed, append(bus, foreign)...)
}

// They are in docs/guides/nats.md.
func TestTailNeedsFewPermissions(t *testing.T) {
	reader := func(name, inbox string) *server.User {
		p := bustest.GuidePermissions(t, "a reader")
		for i, subject := range p.Publish.Allow {
			p.Publish.Allow[i] = strings.Replace(subject, "KUBECDC", "CHANGES", 1)
		}
		p.Subscribe.Allow = []string{inbox}
		return &server.User{Username: name, Password: "correct-horse", Permissions: p}
	}
	address := startJetStream(t, &server.Options{JetStreamDomain: "hub", Users: []*server.User{
		{
			Username: "admin",
			Password: "battery-staple",
		}, reader("reader", "_INBOX.>"), reader("private", "_INBOX_private.>"),
	}})
	publishOne(t, "nats://admin:battery-staple@"+address)
	as := func(user string, more ...string) []string {
		return append([]string{"--bus", "nats://" + user + ":correct-horse@" + address, "pods"}, more...)
	}
	expectTail(t, "", exitOK, as("reader", "--stream", "CHANGES", "--domain", "hub")...)
	expectTail(t, "has no JetStream", exitFailed, "--bus", "nats://admin:battery-staple@"+address, "--stream",
		"CHANGES", "--domain", "elsewhere")
	expectTail(t, "", exitOK, as("private", "--stream", "CHANGES", "--inbox-prefix", "_INBOX_private")...)
	expectTail(t, `--inbox-prefix "_INBOX_private.": want a subject`, exitUsage,
		as("private", "--inbox-prefix", "_INBOX_private.")...)
	file := writeFile(t, filepath.Join(t.TempDir(), "kubecdc.yaml"), "apiVersion: kubecdc.dev/v1\n"+
		"bus: {nats: {stream: {name: CHANGES}, inboxPrefix: _INBOX_private, domain: hub}}\n")
	expectTail(t, "", exitOK, as("private", "--config", file)...)
}
