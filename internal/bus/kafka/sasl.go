package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	saslplain "github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	tokenTimeout = 10 * time.Second // of a token request
	tokenMargin  = 30 * time.Second // a token that expires within this time is not used
)

// mechanismOf returns s, which must be valid, as a mechanism of kafka-go; nil for nil.
func mechanismOf(s *kafkaconfig.SASL) sasl.Mechanism {
	switch {
	case s == nil:
		return nil
	case s.Mechanism == kafkaconfig.SASLOAuthBearer:
		return &saslBearer{sasl: s}
	}
	return saslPassword{s}
}

// saslPassword is PLAIN (RFC 4616) and SCRAM (RFC 5802).
type saslPassword struct{ *kafkaconfig.SASL }

func (p saslPassword) Name() string { return string(p.Mechanism) }

func (p saslPassword) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	secret, err := publish.ReadSecret("sasl passwordFile", p.PasswordFile)
	if err != nil {
		return nil, nil, err
	}
	var m sasl.Mechanism = saslplain.Mechanism{Username: p.User, Password: secret}
	switch p.Mechanism {
	case kafkaconfig.SASLScramSHA256:
		m, err = scram.Mechanism(scram.SHA256, p.User, secret)
	case kafkaconfig.SASLScramSHA512:
		m, err = scram.Mechanism(scram.SHA512, p.User, secret)
	case kafkaconfig.SASLPlain, kafkaconfig.SASLOAuthBearer: // saslBearer has the latter
	}
	if err != nil {
		return nil, nil,
			fmt.Errorf("sasl: user or password cannot be used with %s: SASLprep (RFC 4013) forbids a character in it",
				p.Mechanism)
	}
	return m.Start(ctx)
}

// saslBearer is OAUTHBEARER (RFC 7628).
type saslBearer struct {
	sasl *kafkaconfig.SASL

	mu     sync.Mutex // held during a token request: one token is enough for all connections
	token  *oauth2.Token
	latest *bearerExchange // with token, and without a broker's answer; nil: none
}

func (b *saslBearer) Name() string { return "OAUTHBEARER" }

func (b *saslBearer) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	x, token, err := b.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c >= 0x7f { // RFC 6750, section 2.1; and \x01 ends the field
			return nil, nil, fmt.Errorf("sasl: the token has an invalid character at byte %d: check %s", i, b.source())
		}
	}
	// No authzid: the broker takes the name from the token.
	return x, []byte("n,,\x01auth=Bearer " + token + "\x01\x01"), nil
}

func (b *saslBearer) source() string {
	if b.sasl.OAuth != nil {
		return b.sasl.OAuth.TokenURL
	}
	return b.sasl.TokenFile
}

// begin starts an exchange with the file's token, or one that no broker has refused. ctx ends with
// the attempt to connect.
func (b *saslBearer) begin(ctx context.Context) (*bearerExchange, string, error) {
	x := &bearerExchange{b: b, over: ctx.Err}
	if b.sasl.OAuth == nil {
		token, err := publish.ReadSecret("sasl tokenFile", b.sasl.TokenFile)
		return x, token, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// If a broker refuses with an error code, or closes the connection, Next is not called, but the
	// ctx of the connection ends.
	if b.latest != nil && b.latest.over() != nil {
		b.token, b.latest = nil, nil
	}
	if t := b.token; t == nil || !t.Expiry.IsZero() && time.Until(t.Expiry) <= tokenMargin {
		t, err := fetchToken(ctx, b.sasl.OAuth)
		if err != nil {
			return nil, "", err
		}
		b.token = t
	}
	x.token, b.latest = b.token, x
	return x, x.token.AccessToken, nil
}

func fetchToken(ctx context.Context, o *kafkaconfig.OAuth) (*oauth2.Token, error) {
	secret, err := publish.ReadSecret("sasl clientSecretFile", o.ClientSecretFile)
	if err != nil {
		return nil, err
	}
	trust, err := (&publish.TLS{CAFile: o.CAFile}).Config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, DisableKeepAlives: true}
	if !o.Insecure && !strings.HasPrefix(o.TokenURL, "https:") {
		transport.DialContext = publish.LoopbackOnly(new(net.Dialer).DialContext)
	}
	c := clientcredentials.Config{
		ClientID:     o.ClientID,
		ClientSecret: secret,
		TokenURL:     o.TokenURL,
		Scopes:       o.Scopes,
	}
	t, err := c.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport: transport,
		// The secret is for this URL: another may belong to anyone, or be without TLS.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))
	if err != nil {
		return nil, fmt.Errorf("sasl: get a token from %s as client %s: %w", o.TokenURL, o.ClientID, tokenError(err))
	}
	return t, nil
}

// tokenError removes the server's answer, which may repeat a secret, from an error of x/oauth2,
// except for code and status.
func tokenError(err error) error {
	r := new(oauth2.RetrieveError)
	switch {
	case !errors.As(err, &r):
		return publish.WithoutURL(err)
	case r.ErrorCode != "" && len(r.ErrorCode) < 64: // invalid_client, invalid_scope: RFC 6749, section 5.2
		return fmt.Errorf("%s, error %q", r.Response.Status, r.ErrorCode)
	default:
		return errors.New(r.Response.Status)
	}
}

type bearerExchange struct {
	b     *saslBearer
	token *oauth2.Token // nil: from the file
	over  func() error  // its error is not nil after the attempt to connect
}

func (e *bearerExchange) noteAnswer(refused bool) {
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	if e.b.latest == e {
		e.b.latest = nil
	}
	if refused && e.b.token == e.token { // otherwise another connection has replaced it
		e.b.token = nil
	}
}

// Next gets an empty challenge if the broker accepted the token, otherwise JSON (RFC 7628, section
// 3.2.2). An answer to that is useless: the broker only closes the connection after it.
func (e *bearerExchange) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	refused := len(challenge) > 0
	e.noteAnswer(refused)
	if !refused {
		return true, nil, nil
	}
	var refusal struct{ Status, Scope string }
	if json.Unmarshal(challenge, &refusal) != nil || refusal.Status == "" {
		refusal.Status = "no reason given"
	}
	if refusal.Scope != "" {
		refusal.Status += ", scope " + refusal.Scope
	}
	return false, nil,
		fmt.Errorf("%w: the broker rejects the token of %s: %.200q", kafkanet.ErrAuthentication, e.b.source(),
			refusal.Status)
}
