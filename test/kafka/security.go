package kafka

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// Claims that a token must have to be accepted.
const (
	Issuer   = "https://issuer.example"
	Audience = "kafka"
)

const user = "kubecdc"

// Security has the data that clients need for the listeners of Options.Secure: files of the
// cluster's directory, one user, and tokens.
type Security struct {
	CAFile            string // PEM
	CertFile, KeyFile string // of a client, PEM
	User, Password    string // for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512

	dir    string
	signer *rsa.PrivateKey
}

// NewSecurity creates its own keys in a directory. A test can use them as keys of a stranger, which
// a cluster must reject.
func NewSecurity(dir string) (*Security, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	s := &Security{
		CAFile:   filepath.Join(dir, "ca.crt"),
		CertFile: filepath.Join(dir, "client.crt"),
		KeyFile:  filepath.Join(dir, "client.key"),
		User:     user,
		Password: rand.Text(),
		dir:      dir,
	}
	if err := s.Renew(); err != nil {
		return nil, err
	}
	var err error
	s.signer, err = rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	jwks, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": encode(s.signer.N.Bytes()),
		"e": encode(big.NewInt(int64(s.signer.E)).Bytes()),
	}}})
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	if err := os.WriteFile(s.jwks(), jwks, 0o600); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return s, nil
}

func (s *Security) jwks() string { return filepath.Join(s.dir, "jwks.json") }

// Renew replaces the CA, and the certificates and keys of the nodes and of the client, in the same
// files. A node uses its new ones when it is started again; until then it accepts and presents the
// old ones.
func (s *Security) Renew() error {
	ca, err := newAuthority()
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	nodeCert, nodeKey, err := ca.issue("kafka", x509.ExtKeyUsageServerAuth)
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	clientCert, clientKey, err := ca.issue("kubecdc", x509.ExtKeyUsageClientAuth)
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	for name, text := range map[string][]byte{
		s.CAFile: ca.pem, s.CertFile: clientCert, s.KeyFile: clientKey,
		filepath.Join(s.dir, "node.pem"): append(nodeKey, nodeCert...),
	} {
		// Renamed into place, so that a concurrent reader always gets a whole file.
		if err := errors.Join(os.WriteFile(name+".new", text, 0o600), os.Rename(name+".new", name)); err != nil {
			return fmt.Errorf("keys: %w", err)
		}
	}
	return nil
}

// properties of the secure listeners.
func (s *Security) properties(config map[string]string) {
	for _, l := range []string{"tls", "mutual_tls", "sasl_tls"} {
		prefix := "listener.name." + l + ".ssl."
		config[prefix+"keystore.type"], config[prefix+"keystore.location"] = "PEM", filepath.Join(s.dir, "node.pem")
		config[prefix+"truststore.type"], config[prefix+"truststore.location"] = "PEM", s.CAFile
	}
	config["listener.name.mutual_tls.ssl.client.auth"] = "required"
	config["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
	const security = "org.apache.kafka.common.security."
	for _, l := range []string{"sasl", "sasl_tls"} {
		prefix := "listener.name." + l + "."
		config[prefix+"plain.sasl.jaas.config"] = fmt.Sprintf("%splain.PlainLoginModule required user_%s=%q;", security,
			s.User, s.Password)
		for _, scram := range []string{"scram-sha-256", "scram-sha-512"} {
			config[prefix+scram+".sasl.jaas.config"] = security + "scram.ScramLoginModule required;"
		}
		config[prefix+"oauthbearer.sasl.jaas.config"] = security + "oauthbearer.OAuthBearerLoginModule required;"
		config[prefix+"oauthbearer.sasl.server.callback.handler.class"] = security +
			"oauthbearer.OAuthBearerValidatorCallbackHandler"
		config[prefix+"oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] = "file://" + s.jwks()
		config[prefix+"oauthbearer.sasl.oauthbearer.expected.audience"] = Audience
		config[prefix+"oauthbearer.sasl.oauthbearer.expected.issuer"] = Issuer
	}
}

// flags of the JVM: a broker reads tokens' keys only from URLs that a flag allows.
func (s *Security) flags() []string {
	return []string{"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://" + s.jwks()}
}

// Token returns a JWT (RFC 7519) that OAUTHBEARER accepts for lifetime from now. If lifetime is
// negative, the token has expired.
func (s *Security) Token(subject string, lifetime time.Duration) (string, error) {
	now := time.Now()
	header, err := json.Marshal(map[string]string{"alg": "RS256", "kid": "1", "typ": "JWT"})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": Issuer,
		"aud": Audience,
		"sub": subject,
		"iat": now.Add(min(0, lifetime) - time.Minute).Unix(),
		"exp": now.Add(lifetime).Unix(),
	})
	if err != nil {
		return "", err
	}
	text := encode(header) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.signer, crypto.SHA256, sum[:])
	if err != nil {
		return "", err
	}
	return text + "." + encode(signature), nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// AllowReads permits the user to read topics, and to describe them. It has an effect if the nodes
// have an authorizer.
func (c *Cluster) AllowReads(ctx context.Context, topics ...string) error {
	transport := &kafkago.Transport{ClientID: "kubecdc-test"}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(c.Inside()...), Timeout: 30 * time.Second, Transport: transport}
	var rules []kafkago.ACLEntry
	for _, topic := range topics {
		for _, operation := range []kafkago.ACLOperationType{
			kafkago.ACLOperationTypeDescribe, kafkago.ACLOperationTypeRead,
		} {
			rules = append(rules, kafkago.ACLEntry{
				ResourceType:        kafkago.ResourceTypeTopic,
				ResourceName:        topic,
				ResourcePatternType: kafkago.PatternTypeLiteral,
				Principal:           "User:" + c.security.User,
				Host:                "*",
				Operation:           operation,
				PermissionType:      kafkago.ACLPermissionTypeAllow,
			})
		}
	}
	res, err := client.CreateACLs(ctx, &kafkago.CreateACLsRequest{ACLs: rules})
	if err != nil {
		return fmt.Errorf("allow reads of %v: %w", topics, err)
	}
	return errors.Join(res.Errors...)
}

// addScramUser stores the nodes' part of the user's password (RFC 5802) in the cluster's metadata.
func (c *Cluster) addScramUser(ctx context.Context) error {
	salt := []byte(rand.Text())
	const iterations = 4096 // The minimum of Kafka.
	s256, err := pbkdf2.Key(sha256.New, c.security.Password, salt, iterations, sha256.Size)
	if err != nil {
		return fmt.Errorf("SCRAM user: %w", err)
	}
	s512, err := pbkdf2.Key(sha512.New, c.security.Password, salt, iterations, sha512.Size)
	if err != nil {
		return fmt.Errorf("SCRAM user: %w", err)
	}
	transport := &kafkago.Transport{ClientID: "kubecdc-test"}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(c.Inside()...), Timeout: askTimeout, Transport: transport}
	for _, credential := range []kafkago.UserScramCredentialsUpsertion{
		{Name: user, Mechanism: kafkago.ScramMechanismSha256, Iterations: iterations, Salt: salt, SaltedPassword: s256},
		{Name: user, Mechanism: kafkago.ScramMechanismSha512, Iterations: iterations, Salt: salt, SaltedPassword: s512},
	} {
		// One request each: Kafka accepts a user only once in a request.
		err := until(ctx, "SCRAM user", func() error {
			r, err := client.AlterUserScramCredentials(ctx, &kafkago.AlterUserScramCredentialsRequest{
				Upsertions: []kafkago.UserScramCredentialsUpsertion{credential},
			})
			if err != nil {
				return err
			}
			for _, result := range r.Results {
				err = errors.Join(err, result.Error)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "kubecdc-test-ca"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: ca, key: key, pem: block("CERTIFICATE", der)}, nil
}

// issue returns a certificate and its key. Java reads PEM keys only as PKCS #8.
func (a *authority) issue(name string, usage x509.ExtKeyUsage) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     a.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", pkcs8), nil
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
