package kafka_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	kafkabus "github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// agent is a publisher as in the agent, with its log.
type agent struct {
	*kafkabus.Bus
	log *logText
}

// logText is a log that can be read while it is written.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// runAgent runs a publisher for the duration of the test. Its log, however detailed, must not
// contain any of the secrets.
func runAgent(t *testing.T, cfg kafkabus.Config, secrets ...string) *agent {
	t.Helper()
	cfg.Cluster, cfg.MaxEventBytes = "c", 512<<10
	a := &agent{log: new(logText)}
	var err error
	a.Bus, err = kafkabus.New(cfg, slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if t.Failed() {
			t.Logf("the publisher's log:\n%s", a.log)
		}
		noSecrets(t, a.log.String(), secrets)
	})
	return a
}

// await publishes an event and waits for its acknowledgement.
func (a *agent) await(ctx context.Context, ev *encode.Event) error {
	return bustest.Await(a.Bus, false).Publish(ctx, ev)
}

func noSecrets(t *testing.T, text string, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		if secret != "" && strings.Contains(text, secret) {
			oracle.Fail(t, "a secret is in it: %s", text)
		}
	}
}

// publish sends one event of the agent's encoder, and returns when the broker has acknowledged it.
func (a *agent) publish(ctx context.Context, name string) error {
	pods := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	ref := object.NewRef(pods, "shop", name, "uid-of-"+name)
	doc := object.New(ref, 7, 0, nil,
		fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"resourceVersion":"7"}}`, name))
	var ev encode.Event
	d := &object.Delta{Op: object.Created, Ref: ref, After: doc, ResourceVersion: 7, Observed: time.Now().UnixNano()}
	if err := encode.New(encode.Options{Cluster: "c"}).Encode(&ev, d); err != nil {
		return err
	}
	return a.await(ctx, &ev)
}

func write1(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write1(t, to, string(text))
}

// issuer is a client-credentials endpoint (RFC 6749, section 4.4) that gives tokens to clients with
// the secret.
func issuer(t *testing.T, s *kafka.Security, secret string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		id, got, ok := r.BasicAuth()
		if !ok {
			id, got = r.FormValue("client_id"), r.FormValue("client_secret")
		}
		if id != "agent" || got != secret || r.FormValue("grant_type") != "client_credentials" ||
			r.FormValue("scope") != "write" {
			w.WriteHeader(http.StatusUnauthorized)
			// Some servers repeat the request.
			_ = json.NewEncoder(w).Encode(map[string]string{
				"error":             "invalid_client",
				"error_description": "no such secret: " + got,
			})
			return
		}
		token, err := s.Token("agent", time.Hour)
		if err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	}))
	t.Cleanup(server.Close)
	return server
}

// TestSecurity checks that the publisher is rejected with a wrong secret, file or certificate, and
// accepted as soon as the file is corrected. That needs no restart. The error in between is clear,
// and no secret is in the log or the error.
func TestSecurity(t *testing.T) {
	t.Parallel()
	const topic = "secured"
	c := lasting.get(t)
	if err := c.CreateTopic(t.Context(), topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	s := c.Security()
	strangers, err := kafka.NewSecurity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const wrong = "no-such-secret"
	trust := &publish.TLS{CAFile: s.CAFile}

	// A door rejects the client after a call of wrong, and accepts it after a call of right. Each
	// has its own files.
	type door struct {
		listener     kafka.Listener
		config       kafkabus.Config
		wrong, right func()
		says         []string // in the log while the client is rejected
		secrets      []string
	}
	doors := map[string]func(t *testing.T, dir string) door{
		"tls": func(t *testing.T, dir string) door {
			ca := filepath.Join(dir, "ca.crt")
			return door{
				listener: kafka.TLS, config: kafkabus.Config{TLS: &publish.TLS{CAFile: ca}},
				wrong: func() { copyFile(t, strangers.CAFile, ca) }, right: func() { copyFile(t, s.CAFile, ca) },
				says: []string{"certificate", "caFile"},
			}
		},
		"mutual tls": func(t *testing.T, dir string) door {
			cert, key := filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
			return door{
				listener: kafka.MutualTLS, config: kafkabus.Config{TLS: &publish.TLS{
					CAFile:   s.CAFile,
					CertFile: cert,
					KeyFile:  key,
				}},
				wrong: func() { copyFile(t, strangers.CertFile, cert); copyFile(t, strangers.KeyFile, key) },
				right: func() { copyFile(t, s.CertFile, cert); copyFile(t, s.KeyFile, key) },
				says:  []string{"certificate", "certFile"},
			}
		},
	}
	for _, over := range []struct {
		name     string
		listener kafka.Listener
		tls      *publish.TLS
	}{{"", kafka.SASL, nil}, {" over tls", kafka.SASLTLS, trust}} {
		for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
			doors[mechanism+over.name] = func(t *testing.T, dir string) door {
				file := filepath.Join(dir, "password")
				return door{
					listener: over.listener, config: kafkabus.Config{TLS: over.tls, SASL: &kafkaconfig.SASL{
						Mechanism:    kafkaconfig.Mechanism(mechanism),
						User:         s.User,
						PasswordFile: file,
					}},
					wrong: func() { write1(t, file, wrong) }, right: func() { write1(t, file, s.Password+"\n") },
					says: []string{"authenticate with " + mechanism, "passwordFile"}, secrets: []string{
						s.Password, wrong,
					},
				}
			}
		}
		doors["OAUTHBEARER, token file"+over.name] = func(t *testing.T, dir string) door {
			file := filepath.Join(dir, "token")
			stale, err := s.Token("agent", -time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := s.Token("agent", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return door{
				listener: over.listener, config: kafkabus.Config{TLS: over.tls, SASL: &kafkaconfig.SASL{
					Mechanism: "OAUTHBEARER",
					TokenFile: file,
				}},
				wrong: func() { write1(t, file, stale) }, right: func() { write1(t, file, fresh+"\n") },
				says: []string{"rejects the token", file}, secrets: []string{stale, fresh},
			}
		}
		doors["OAUTHBEARER, endpoint"+over.name] = func(t *testing.T, dir string) door {
			const secret = "the-client's-secret"
			server, file := issuer(t, s, secret), filepath.Join(dir, "secret")
			return door{
				listener: over.listener,
				config: kafkabus.Config{TLS: over.tls, SASL: &kafkaconfig.SASL{
					Mechanism: "OAUTHBEARER",
					OAuth: &kafkaconfig.OAuth{
						TokenURL: server.URL, ClientID: "agent", ClientSecretFile: file, Scopes: []string{"write"},
					},
				}},
				wrong: func() { write1(t, file, wrong) }, right: func() { write1(t, file, secret) },
				says: []string{"401", "invalid_client"}, secrets: []string{secret, wrong},
			}
		}
	}
	published := map[string]bool{}
	t.Run("doors", func(t *testing.T) {
		for name, open := range doors {
			published[eventName(name)] = true
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				door := open(t, t.TempDir())
				door.wrong()
				door.config.Brokers, door.config.Topic = c.BrokersAt(door.listener), topic
				a := runAgent(t, door.config, door.secrets...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				acked := make(chan error, 1)
				go func() { acked <- a.publish(ctx, eventName(name)) }()
				wait.Eventually(t, time.Minute, func() error {
					ready := a.Ready()
					if ready == nil {
						t.Fatal("ready, with a wrong secret")
					}
					noSecrets(t, ready.Error(), door.secrets)
					said := a.log.String()
					if !strings.Contains(said, "level=ERROR") {
						return fmt.Errorf("no error in the log: %s", said)
					}
					for _, want := range door.says {
						if !strings.Contains(said, want) {
							return fmt.Errorf("the log lacks %q: %s", want, said)
						}
					}
					return nil
				})
				select {
				case err := <-acked:
					t.Fatalf("published with a wrong secret: %v", err)
				default:
				}
				door.right()
				if err := <-acked; err != nil {
					t.Fatal(err)
				}
				wait.Eventually(t, time.Minute, a.Ready)
			})
		}
	})
	// All records are there, once each.
	records, err := c.Records(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records[0] {
		_, name, _ := strings.Cut(string(r.Key), "/shop/")
		if !published[name] {
			oracle.Fail(t, "record %s: not published, or twice", r.Key)
		}
		delete(published, name)
	}
	if len(published) > 0 {
		oracle.Fail(t, "not there: %v", published)
	}
}

func eventName(door string) string {
	return strings.ToLower(strings.NewReplacer(" ", "-", ",", "").Replace(door))
}

// TestRotatedCertificates replaces the authority, the nodes' certificates and the client's while
// the publisher runs, ROTATIONS times.
func TestRotatedCertificates(t *testing.T) {
	t.Parallel()
	const topic = "rotated"
	rotations := sizes(t, "ROTATIONS", 2)[0]
	c := mortal.holdOne(t)
	if err := c.CreateTopic(t.Context(), topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	s := c.Security()
	a := runAgent(t, kafkabus.Config{
		Brokers: c.BrokersAt(kafka.MutualTLS), Topic: topic, TLS: &publish.TLS{
			CAFile:   s.CAFile,
			CertFile: s.CertFile,
			KeyFile:  s.KeyFile,
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := range rotations {
		if err := a.publish(ctx, fmt.Sprint("rotation-", i)); err != nil {
			t.Fatal(err)
		}
		if err := s.Renew(); err != nil {
			t.Fatal(err)
		}
		c.Node(0).Kill()
		if err := c.Node(0).Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.publish(ctx, fmt.Sprint("rotation-", rotations)); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, c, topic)[0]; len(got) != rotations+1 {
		oracle.Fail(t, "%d records, want %d: %q", len(got), rotations+1, got)
	}
}
