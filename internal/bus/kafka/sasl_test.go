package kafka_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
)

// tokens is an authorization server that issues token1, token2 and so on, which do not expire.
func tokens(t *testing.T) (sasl *kafkaconfig.SASL, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": fmt.Sprint("token", asked.Add(1)),
			"token_type":   "Bearer",
		})
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &kafkaconfig.SASL{
		Mechanism: "OAUTHBEARER",
		OAuth:     &kafkaconfig.OAuth{TokenURL: server.URL, ClientID: "agent", ClientSecretFile: file},
	}, asked
}

// refusing is a cluster of one broker that refuses a token by an error code, like brokers whose
// token check does not fail as in RFC 7628.
func refusing(t *testing.T, token string) *model {
	t.Helper()
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	m.login = func(initial string) kafkago.Error {
		if strings.Contains(initial, token+"\x01") {
			return kafkago.SASLAuthenticationFailed
		}
		return 0
	}
	listen(t, m, nil)
	return m
}

// A token that a broker refuses by an error code is not retried: the next connection uses another
// one.
func TestTokenRefusedByErrorCodeIsNotTriedAgain(t *testing.T) {
	m := refusing(t, "token1")
	cfg := kafkaConfig(m.addrs...)
	sasl, _ := tokens(t)
	cfg.SASL = sasl
	k := runKafka(t, cfg, nil)
	published := make(chan error, 1)
	go func() { published <- k.Publish(t.Context(), keyed("a", 1)) }()
	wait(t, "record behind a refused token", func() bool { return len(m.logOf("kubecdc.prod-eu-1", 0)) == 1 })
	if err := <-published; err != nil {
		t.Error(err)
	}
	if err := k.stop(); err != nil {
		t.Error(err)
	}
}

// The same for connections of relays, which kafka-go makes; an accepted token is kept.
func TestDialerDoesNotTryARefusedTokenAgain(t *testing.T) {
	m := refusing(t, "token1")
	sasl, asked := tokens(t)
	d, err := kafka.NewDialer(&kafka.Config{SASL: sasl})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.DialContext(t.Context(), "tcp", m.addrs[0]); !errors.Is(err, kafkago.SASLAuthenticationFailed) {
		t.Fatalf("with a token that is refused: %v", err)
	}
	for range 3 {
		c, err := d.DialContext(t.Context(), "tcp", m.addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("%d tokens, want 2", n)
	}
}
