package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// toyAgent builds an agent with one more bus: a package, and a line in the list of drivers. No
// other file differs.
func toyAgent(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	list := filepath.Join(root, "internal", "bus", "catalog", "catalog.go")
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	const line, path = "\t\tstdout.Driver(),\n", "\t\"github.com/kubecdc/kubecdc/internal/bus/stdout\"\n"
	with := strings.Replace(string(text), line, line+"\t\ttoy.Driver(),\n", 1)
	with = strings.Replace(with, path, path+"\t\"github.com/kubecdc/kubecdc/internal/bus/toy\"\n", 1)
	changed := filepath.Join(dir, "catalog.go")
	overlay := filepath.Join(dir, "overlay.json")
	binary := filepath.Join(dir, "kubecdc")
	files, err := json.Marshal(map[string]map[string]string{"Replace": {
		list: changed,
		filepath.Join(root, "internal", "bus", "toy", "toy.go"): filepath.Join(root, "test", "e2e", "testdata",
			"toy", "toy.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{changed: with, overlay: string(files)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command(t, root, "go", "build", "-overlay", overlay, "-o", binary, "./cmd/agent")
	return binary
}

// toyBus acknowledges lines.
type toyBus struct {
	address string
	lines   *io.PipeReader
}

func newToyBus(t *testing.T) *toyBus {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	t.Cleanup(func() {
		_ = l.Close()
		_ = r.Close()
	})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			line, err := in.ReadBytes('\n')
			if err == nil {
				_, err = w.Write(line)
			}
			if err == nil {
				_, err = conn.Write([]byte{'+'})
			}
			if err != nil {
				_ = w.Close()
				return
			}
		}
	}()
	return &toyBus{l.Addr().String(), r}
}

// Config implements world.Destination.
func (b *toyBus) Config() string { return "toy: {address: \"" + b.address + "\"}" }

// Read implements world.Destination.
func (b *toyBus) Read(t testing.TB, r *oracle.Reader) *world.Stream {
	return world.ReadLines(t, b.lines, r)
}

// TestNewBus adds a bus by its package and a line in the list of drivers. The configuration and
// --bus select it. It is validated and summarized, accepts the events, and the status shows it.
func TestNewBus(t *testing.T) {
	slow(t)
	t.Parallel()
	binary := toyAgent(t)
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	for content, want := range map[string]string{
		"bus: {toy: {address: \"toy:1\"}}\n":                         "to         the toy at toy:1\n",
		"bus: {toy: {address: toy}}\n":                               "kubecdc.yaml:2:22: bus.toy.address: must be host:port, got \"toy\"",
		"bus: {toy: {adress: \"toy:1\"}}\n":                          "bus.toy.adress: unknown field, did you mean address?",
		"bus: {toys: {}}\n":                                          "bus.toys: unknown field, did you mean toy?",
		"bus: {toy: {}, stdout: {}}\n":                               "bus: must name one bus only, got stdout and toy",
		"bus: {}\n":                                                  "must name one bus, nats, kafka, http, stdout or toy, got none",
		"bus: {toy: {address: \"toy:1\"}}\ndeadLetter: {topic: t}\n": "deadLetter.topic: is for bus.kafka; bus.toy rejects nothing, remove it",
		"relays: [{name: r, to: {toy: {address: toy}}}]\n":           "relays[0].to.toy.address: must be host:port",
	} {
		if err := os.WriteFile(file, []byte("apiVersion: kubecdc.dev/v1\n"+content), 0o600); err != nil {
			t.Fatal(err)
		}
		// the text says enough
		out, _ := exec.CommandContext(t.Context(), binary, "config", "check", file).CombinedOutput()
		if !strings.Contains(string(out), want) {
			t.Errorf("config check of %s: want %q, got:\n%s", content, want, out)
		}
	}
	if out, _ := exec.CommandContext(t.Context(), binary, "run", "--bus",
		"amqp://x").CombinedOutput(); !strings.Contains(string(out), "stdout: or toy://host:port") {
		t.Errorf("--bus amqp://x: got %s", out)
	}

	const namespace = "toy"
	p := world.SharedPlane(t)
	p.NewNamespace(t, namespace)
	p.MakeConfigMaps(t, namespace, "old", 10)
	b := newToyBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Binary: binary, Bus: b, Watch: `
  - resources: [configmaps]
    namespaces: [toy]
`})
	s := b.Read(t, p.Reader())
	v := world.ViewOf(s.Completed(t, "configmaps"))
	p.ChangeConfigMaps(t, namespace, "old", 10)
	p.MakeConfigMaps(t, namespace, "new", 10)
	got := world.Check(t, p, s, v, "configmaps")
	got.NoGaps(t)
	a.Ready(t)
	var status struct {
		Bus struct {
			Name      string
			Connected bool
		}
	}
	text, err := a.Get(t.Context(), "/status")
	if err == nil {
		err = json.Unmarshal([]byte(text), &status)
	}
	if err != nil || status.Bus.Name != "toy "+b.address || !status.Bus.Connected {
		t.Errorf("status: %+v, %v", status.Bus, err)
	}
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent, asked to stop: %v", err)
	}

	// --bus replaces the bus of the file, which is of another kind.
	b = newToyBus(t)
	if err := os.WriteFile(file,
		[]byte(fmt.Sprintf("apiVersion: kubecdc.dev/v1\nwatch: [{resources: [configmaps], namespaces: [%s]}]\n"+
			"server: {address: \"127.0.0.1:%d\"}\ncheckpoint: {file: {path: %q}}\n", namespace, world.FreePort(t),
			filepath.Join(t.TempDir(), "c.json"))), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "run", "--config", file, "--kubeconfig", p.Kubeconfig, "--bus", "toy://"+b.address)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	agent, err := world.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Kill()
	b.Read(t, p.Reader()).Completed(t, "configmaps")
}
