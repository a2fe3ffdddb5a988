package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// relaying is a kubecdc relay, or another command, that runs.
type relaying struct {
	out, complaints *terminalOf
	stop            context.CancelFunc
	ended           chan int
}

func startRelay(t *testing.T, args ...string) *relaying {
	t.Helper()
	return startCommand(t, append([]string{"relay"}, args...)...)
}

func startCommand(t *testing.T, args ...string) *relaying {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &relaying{newTerminal(), newTerminal(), stop, make(chan int, 1)}
	go func() { r.ended <- run(ctx, args, r.out, r.complaints) }()
	t.Cleanup(stop)
	return r
}

// end ends it and returns its exit code.
func (r *relaying) end(t *testing.T) int {
	t.Helper()
	r.stop()
	select {
	case code := <-r.ended:
		return code
	case <-time.After(30 * time.Second):
		t.Fatalf("does not end: %s", r.complaints)
		return 0
	}
}

// relayedNames are the names of the objects whose events were written.
func relayedNames(out string) string {
	var names []string
	for line := range strings.Lines(out) {
		e, err := consume.Parse([]byte(strings.TrimRight(line, "\n")))
		if err != nil {
			names = append(names, err.Error())
			continue
		}
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

func webs(from, to int) string {
	var out []string
	for n := from; n <= to; n++ {
		out = append(out, fmt.Sprintf("web-%d", n))
	}
	return strings.Join(out, " ")
}

func TestRelayByFlagsGoesOnWhereItEnded(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	publishAll(t, s.ClientURL(), 1, 3)
	args := []string{"--bus", s.ClientURL(), "--to", "stdout:", "--name", "audit", "--start", "beginning", "pods"}
	first := startRelay(t, args...)
	first.out.waitFor(t, "what was there", func(got string) bool { return relayedNames(got) == webs(1, 3) })
	if code := first.end(t); code != exitOK {
		t.Fatalf("exit code %d: %s", code, first.complaints)
	}
	publishAll(t, s.ClientURL(), 4, 5)
	second := startRelay(t, args...)
	second.out.waitFor(t, "what came meanwhile", func(got string) bool { return relayedNames(got) == webs(4, 5) })
	if code := second.end(t); code != exitOK {
		t.Fatalf("exit code %d: %s", code, second.complaints)
	}
	publishAll(t, s.ClientURL(), 6, 6)

	var out, complaints bytes.Buffer
	if code := run(t.Context(), []string{"relay", "status", "--bus", s.ClientURL(), "--name", "audit", "-o", "json"},
		&out, &complaints); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &complaints)
	}
	var status []relayStatus
	if err := json.Unmarshal(out.Bytes(), &status); err != nil {
		t.Fatal(err)
	}
	if c := status[0].Cursors[0]; c.At != 5 || c.Behind != 1 || c.Place != "KUBECDC" {
		t.Errorf("status: %s", &out)
	}
	out.Reset()
	if code := run(t.Context(), []string{"relay", "status", "--bus", s.ClientURL(), "--name", "other"}, &out,
		&complaints); code != exitOK || !strings.Contains(out.String(), "it has not been started yet") {
		t.Errorf("exit code %d:\n%s", code, &out)
	}
}

// Relays of a file: each gets what it asks for, and one whose receiver refuses does not hold up the
// others.
func TestRelaysOfAFile(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	var mu sync.Mutex
	var got []string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		e, bad := consume.Parse(body)
		if err != nil || bad != nil {
			http.Error(w, "no event", http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, e.Name)
	}))
	defer receiver.Close()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "never", http.StatusUnprocessableEntity)
	}))
	defer refusing.Close()
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	text := fmt.Sprintf(`apiVersion: kubecdc.dev/v1
bus: {nats: {url: %q}}
server: {address: "127.0.0.1:0"}
log: {format: text}
relays:
  - {name: hook, start: beginning, to: {http: {url: %q}}}
  - {name: refused, start: beginning, to: {http: {url: %q}}}
  - {name: lines, start: beginning, namespaces: ["web-*"], to: {stdout: {}}}
  - {name: deleted, start: beginning, operations: [deleted], to: {stdout: {}}}
`, s.ClientURL(), receiver.URL, refusing.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	publishAll(t, s.ClientURL(), 1, 3)
	r := startRelay(t, "--config", file)
	r.complaints.waitFor(t, "the failure of one", func(log string) bool {
		return strings.Contains(log, "relay=refused") && strings.Contains(log, "rejects event")
	})
	publishAll(t, s.ClientURL(), 4, 4)
	waitUntil(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == 4
	})
	if code := r.end(t); code != exitOK {
		t.Errorf("exit code %d: %s", code, r.complaints)
	}
	if n := r.out.String(); n != "" {
		t.Errorf("what nobody asked for: %s", n)
	}

	// One of them alone ends with its error.
	alone := startRelay(t, "--config", file, "refused")
	select {
	case code := <-alone.ended:
		if code != exitFailed ||
			!strings.Contains(alone.complaints.String(), "kubecdc: relay refused: stream KUBECDC, record ") ||
			!strings.Contains(alone.complaints.String(), ": the target rejects event") {
			t.Errorf("exit code %d: %s", code, alone.complaints)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("does not end")
	}
}

func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited for too long")
		}
	}
}

// A relay reads with the credentials of the file's bus, and tries on with those that are put there
// in place of wrong ones.
func TestRelayReadsWithCredentials(t *testing.T) {
	t.Parallel()
	address := startJetStream(t, &server.Options{Username: "relay", Password: "right-s3cr3t"})
	publishAll(t, "nats://relay:right-s3cr3t@"+address, 1, 2)
	dir := t.TempDir()
	password, file := filepath.Join(dir, "password"), filepath.Join(dir, "kubecdc.yaml")
	text := fmt.Sprintf(`apiVersion: kubecdc.dev/v1
bus: {nats: {url: "nats://%s", auth: {user: relay, passwordFile: %q}}}
server: {address: "127.0.0.1:0"}
relays:
  - {name: lines, start: beginning, to: {stdout: {}}}
`, address, password)
	for name, content := range map[string]string{password: "wrong-s3cr3t\n", file: text} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := startRelay(t, "--config", file)
	r.complaints.waitFor(t, "that the bus refuses it", func(log string) bool {
		return strings.Contains(strings.ToLower(log), "authorization")
	})
	if err := os.WriteFile(password, []byte("right-s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.out.waitFor(t, "what was there", func(got string) bool { return relayedNames(got) == webs(1, 2) })
	if code := r.end(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(r.complaints.String(), "s3cr3t") {
		t.Errorf("a secret is in the log:\n%s", r.complaints)
	}
}
