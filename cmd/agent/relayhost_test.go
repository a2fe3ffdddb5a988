package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// An agent hosts its relays: it forwards records from the bus, reports a relay that cannot start,
// and is ready.
func TestRunHostsRelays(t *testing.T) {
	nats := startServer(t, t.TempDir(), -1)
	received := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a truncated body fails the comparison below
		received <- string(body)
	}))
	defer receiver.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "kubecdc.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `apiVersion: kubecdc.dev/v1
cluster: c
bus: {nats: {url: %q}}
checkpoint: {file: {path: %q}}
server: {address: "127.0.0.1:0"}
relays:
  - {name: hook, start: beginning, operations: [updated], to: {http: {url: %q}}}
  - {name: broken, to: {http: {url: "http://127.0.0.1:1/", tokenFile: /none/token}}}
`, nats.ClientURL(), filepath.Join(dir, "checkpoint.json"), receiver.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL), "--config", file)
	address := agent.says(t,
		`"msg":"kubecdc starts".*"bus":"NATS nats://127.0.0.1:[0-9]+, stream KUBECDC","server_address":"([^"]+)"`)[1]
	agent.says(t, "connected to bus")
	agent.says(t,
		`"level":"ERROR","msg":"relay failed, restarting it; records wait on the bus meanwhile","relay":"broken"`)

	publishAll(t, nats.ClientURL(), 1, 2)
	for range 2 {
		select {
		case body := <-received:
			if !strings.Contains(body, `"id":"pods/u/`) {
				t.Errorf("received %s", body)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("nothing is relayed:\n%s", agent.stderr)
		}
	}
	var answer string
	deadline := time.After(30 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		answer = string(body)
		if response.StatusCode == http.StatusOK &&
			regexp.MustCompile(`\[\+\] relay hook: ok.*\n\[-\] relay broken: `).MatchString(answer) {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("/readyz: %d\n%s", response.StatusCode, answer)
		}
	}
	if code := agent.stop(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C:\n%s", code, agent.stderr)
	}
}
