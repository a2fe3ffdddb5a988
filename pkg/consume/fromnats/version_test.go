package fromnats_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// startOldServer starts a server that accepts connections, and answers nothing but pings.
func startOldServer(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c,
					`INFO {"server_id":"old","version":"2.8.4","proto":1,"headers":true,"max_payload":1048576,"jetstream":true}`+
						"\r\n")
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "PING") {
						_, _ = io.WriteString(c, "PONG\r\n")
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return "nats://" + l.Addr().String()
}

// Servers before 2.10 answered readers with an error that named no version.
func TestReaderRefusesAServerThatIsTooOld(t *testing.T) {
	const want = "nats-server 2.8.4 is too old: use 2.10 or later"
	url := startOldServer(t)
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, source := range map[string]*fromnats.JetStream{"by URL": {URL: url}, "by connection": {Conn: conn}} {
		if _, err := source.Read(t.Context(), consume.Query{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: reading: %v", name, err)
		}
		options := fromnats.RunOptions{JetStream: *source, Durable: "audit"}
		if err := fromnats.Run(t.Context(), options, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: running a consumer: %v", name, err)
		}
	}
}
