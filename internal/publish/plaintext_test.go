package publish_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const plaintextSecret = "s3cret-of-the-bus"

// listenOutside listens at an address that the publisher treats as another machine's
// (publish.Remote). It is a loopback address: tests connect to nothing else.
func listenOutside(t *testing.T) net.Listener {
	t.Helper()
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "tcp", net.JoinHostPort(publish.Remote, "0"))
	if err != nil {
		t.Skipf("this system has no loopback address but 127.0.0.1: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func secretIn(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	writeFile(t, file, plaintextSecret)
	return file
}

// eavesdrop returns the first line that each client sends to a NATS server without TLS, or "" if it
// sends nothing.
func eavesdrop(t *testing.T, l net.Listener, info string) <-chan string {
	t.Helper()
	told := make(chan string, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(conn, "INFO %s\r\n", info)
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			line, _ := bufio.NewReader(conn).ReadString('\n')
			_ = conn.Close()
			told <- line
		}
	}()
	return told
}

// A password or token of NATS is not sent to another machine without TLS, unless that is permitted.
func TestNATSSecretsInPlaintext(t *testing.T) {
	file := secretIn(t)
	for name, c := range map[string]struct {
		auth natsconfig.Auth
		url  string
		tls  *publish.TLS
		sent bool
	}{
		"password":     {auth: natsconfig.Auth{User: "u", PasswordFile: file}},
		"token":        {auth: natsconfig.Auth{TokenFile: file}},
		"in the URL":   {url: "nats://u:" + plaintextSecret + "@"},
		"TLS wanted":   {auth: natsconfig.Auth{TokenFile: file}, tls: &publish.TLS{}}, // the server offers none
		"permitted":    {auth: natsconfig.Auth{TokenFile: file, Insecure: true}, sent: true},
		"by websocket": {auth: natsconfig.Auth{TokenFile: file}, url: "ws://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listenOutside(t)
			told := eavesdrop(t, l, `{"server_id":"x","headers":true,"max_payload":1048576}`)
			url := c.url
			if url == "" {
				url = "nats://"
			}
			url += l.Addr().String()
			settings := &natsbus.Config{URL: url, Auth: c.auth, TLS: c.tls}
			options, err := natsbus.Opener{Config: settings}.ConnectOptions("bus.nats")
			if err != nil {
				t.Fatal(err)
			}
			nc, err := nats.Connect(url, append(options, nats.MaxReconnects(0))...)
			if err == nil {
				nc.Close()
			}
			if got := <-told; strings.Contains(got, plaintextSecret) != c.sent {
				t.Errorf("told %q, and sent is to be %v: %v", got, c.sent, err)
			}
			if c.tls != nil || strings.Contains(c.url, "@") {
				return // NewNATS has no such URL
			}
			cfg := testConfig(url)
			cfg.Auth = c.auth
			r := run(t, cfg)
			if got := <-told; strings.Contains(got, plaintextSecret) != c.sent {
				t.Errorf("the publisher told %q, and sent is to be %v", got, c.sent)
			}
			if !c.sent {
				wait(t, "a line in the log that says why", func() bool {
					return strings.Contains(r.Log.String(), "would be sent unencrypted")
				})
			}
		})
	}
}

// The brokers that a cluster names are dialled like the first ones: whatever their names, no secret
// is sent to another machine.
func TestKafkaSecretsInPlaintext(t *testing.T) {
	l := listenOutside(t)
	file := secretIn(t)
	for name, c := range map[string]struct {
		sasl    *kafkaconfig.SASL
		refused bool
	}{
		"nobody":      {nil, false},
		"PLAIN":       {&kafkaconfig.SASL{Mechanism: "PLAIN", User: "u", PasswordFile: file}, true},
		"permitted":   {&kafkaconfig.SASL{Mechanism: "PLAIN", User: "u", PasswordFile: file, Insecure: true}, false},
		"SCRAM":       {&kafkaconfig.SASL{Mechanism: "SCRAM-SHA-256", User: "u", PasswordFile: file}, false},
		"OAUTHBEARER": {&kafkaconfig.SASL{Mechanism: "OAUTHBEARER", TokenFile: file}, true},
	} {
		d, err := kafka.NewDialer(&kafka.Config{SASL: c.sasl})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := d.DialFunc(t.Context(), "tcp", l.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		if errors.Is(err, publish.ErrPlaintext) != c.refused {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The client's secret is sent only to its own URL, and there only over TLS.
func TestOAuthSecretInPlaintext(t *testing.T) {
	var asked, elsewhere atomic.Int64
	outside := &httptest.Server{Listener: listenOutside(t), Config: &http.Server{
		ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			asked.Add(1)
		}),
	}}
	outside.Start()
	defer outside.Close()
	fetch := func(url string, insecure bool) error {
		source := &kafkaconfig.OAuth{
			TokenURL: url, ClientID: "agent", ClientSecretFile: secretIn(t), Insecure: insecure,
		}
		d, err := kafka.NewDialer(&kafka.Config{SASL: &kafkaconfig.SASL{Mechanism: "OAUTHBEARER", OAuth: source}})
		if err == nil {
			_, _, err = d.SASLMechanism.Start(t.Context())
		}
		return err
	}
	if err := fetch(outside.URL, false); !errors.Is(err, publish.ErrPlaintext) || asked.Load() != 0 {
		t.Errorf("got %v, asked %d times", err, asked.Load())
	}
	if err := fetch(outside.URL, true); errors.Is(err, publish.ErrPlaintext) || asked.Load() == 0 {
		t.Errorf("permitted: got %v, asked %d times", err, asked.Load())
	}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	redirects := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer redirects.Close()
	if err := fetch(redirects.URL, false); err == nil || elsewhere.Load() != 0 {
		t.Errorf("redirected: got %v, and there were %d requests", err, elsewhere.Load())
	}
}

// Headers and tokens of HTTP, of the claim store and of tracing.
func TestHTTPSecretsInPlaintext(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	outside := &httptest.Server{Listener: listenOutside(t), Config: &http.Server{
		ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			asked.Add(1)
		}),
	}}
	outside.Start()
	defer outside.Close()
	headers := filepath.Join(t.TempDir(), "headers")
	writeFile(t, headers, "X-Key: "+plaintextSecret+"\n")
	for _, insecure := range []bool{false, true} {
		for name, send := range map[string]func(context.Context) (log fmt.Stringer, err error){
			"receiver": func(ctx context.Context) (fmt.Stringer, error) {
				r, err := publishhttp.NewReceiver(publishhttp.ClientConfig{URL: outside.URL, Timeout: yamldoc.Duration{
					Duration: time.Minute,
				}, HeadersFile: headers, Insecure: insecure})
				if err == nil {
					_, err = r.Post(ctx, nil, nil)
				}
				return new(logBuffer), err
			},
			"bus": func(ctx context.Context) (fmt.Stringer, error) {
				log := new(logBuffer)
				b, err := publishhttp.New(
					publishhttp.Config{URL: outside.URL, TokenFile: secretIn(t), Insecure: insecure}, log.Logger(), nil)
				if err == nil {
					err = runBus(t, b).Publish(ctx, event("web-1", 1, `{}`))
				}
				return log, err
			},
			"claim store": func(ctx context.Context) (fmt.Stringer, error) {
				log := new(logBuffer)
				c, err := publishhttp.NewClaimStore(
					publishhttp.ClientConfig{URL: outside.URL, HeadersFile: headers, Insecure: insecure}, log.Logger(),
					publish.NewMetrics(nil))
				if err == nil {
					_, err = c.Put(ctx, "name", "text/plain", []byte("x"), nil)
				}
				return log, err
			},
		} {
			asked.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if !insecure {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond) // they keep trying
			}
			log, err := send(ctx)
			cancel()
			if insecure != (err == nil) || insecure != (asked.Load() > 0) {
				t.Errorf("%s, insecure %v: got %v, and %d requests", name, insecure, err, asked.Load())
			}
			if said := log.String() + fmt.Sprint(err); !insecure &&
				!strings.Contains(said, publish.ErrPlaintext.Error()) {
				t.Errorf("%s: it is not said why: %s", name, said)
			}
		}
	}
}

// A connection for secrets in plaintext that leaves this machine is closed before any write.
func TestLoopbackOnly(t *testing.T) {
	var c net.ListenConfig
	local, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	var dialled net.Conn
	dial := publish.LoopbackOnly(func(ctx context.Context, network, addr string) (net.Conn, error) {
		var err error
		dialled, err = new(net.Dialer).DialContext(ctx, network, addr)
		return dialled, err
	})
	for addr, permitted := range map[string]bool{
		local.Addr().String():            true,
		listenOutside(t).Addr().String(): false,
	} {
		conn, err := dial(t.Context(), "tcp", addr)
		switch {
		case permitted && err != nil:
			t.Errorf("%s: %v", addr, err)
		case !permitted && !errors.Is(err, publish.ErrPlaintext):
			t.Errorf("%s: got %v, want %v", addr, err, publish.ErrPlaintext)
		}
		if (conn != nil) != permitted {
			t.Errorf("%s: the connection is %v", addr, conn)
		}
		if err := dialled.Close(); permitted == errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: closing the connection once more: %v", addr, err)
		}
	}
}
