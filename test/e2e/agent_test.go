package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// clusterName has a dot, which must be escaped in subjects.
const clusterName = "e2e.test"

// agentBinary is built once, when the first test asks for it.
var agentBinary struct {
	sync.Mutex
	dir, path string
	err       error
}

// buildAgent is the path of the agent's binary.
func buildAgent(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("KUBECDC_E2E_AGENT"); path != "" {
		return path
	}
	b := &agentBinary
	b.Lock()
	defer b.Unlock()
	if b.path == "" && b.err == nil {
		b.path, b.err = compileAgent(t.Context(), &b.dir)
	}
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

func compileAgent(ctx context.Context, dir *string) (string, error) {
	var err error
	if *dir, err = os.MkdirTemp("", "kubecdc-e2e-agent-"); err != nil {
		return "", err
	}
	path := filepath.Join(*dir, "kubecdc")
	args := []string{"build", "-o", path}
	if racing() {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/agent")...)
	cmd.Dir = filepath.Join("..", "..") // The agent's module.
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return path, nil
}

func removeAgent() {
	agentBinary.Lock()
	defer agentBinary.Unlock()
	if agentBinary.dir != "" {
		_ = os.RemoveAll(agentBinary.dir)
	}
}

// agentConfig is what differs between the agents of the tests.
type agentConfig struct {
	Watch      string      // YAML, the value of watch.
	Snapshot   string      // "" is initial.
	Bus        destination // Nil is stdout.
	Kubeconfig string      // "" is the admin's.
	Checkpoint string      // YAML, the value of checkpoint. "" is a file of this agent's, "{}" leaves it to the agent.
	Extra      string      // More YAML, at the top level.
	Env        []string    // More of the environment, each KEY=value.
	File       string      // A whole configuration instead; its server.address and bus are replaced.
	Binary     string      // "" is the agent of this tree.
}

// agent is the agent as a process of its own.
type agent struct {
	*process
	url    string
	log    string    // The file with its stderr.
	stdout io.Reader // Of an agent without a bus.

	argv   []string
	killed bool  // By the test: however it ended is no fault.
	asked  bool  // By the test, to stop.
	early  error // How it ended by itself, where the test wanted to kill it; else nil.
}

// startAgent starts an agent and stops it when the test ends, which it has to survive with exit code 0.
func startAgent(t testing.TB, p *plane, c agentConfig) *agent {
	t.Helper()
	dir := t.TempDir()
	a := &agent{log: filepath.Join(dir, "agent.log")}
	address := "127.0.0.1:" + strconv.Itoa(freePort(t))
	a.url = "http://" + address
	destination := "stdout: {}"
	if c.Bus != nil {
		destination = c.Bus.config()
	}
	if c.Snapshot == "" {
		c.Snapshot = "initial"
	}
	if c.Checkpoint == "" {
		c.Checkpoint = fmt.Sprintf("{file: {path: %q}}", filepath.Join(dir, "checkpoint.json"))
	}
	if c.Kubeconfig == "" {
		c.Kubeconfig = p.kubeconfig
	}
	config := fmt.Sprintf(`apiVersion: kubecdc.dev/v1
cluster: %s
watch:
%s
snapshot: {mode: %s}
bus:
  %s
checkpoint: %s
server: {address: %q, pprof: true}
%s
`, clusterName, c.Watch, c.Snapshot, destination, c.Checkpoint, address, c.Extra)
	args := []string{"--kubeconfig", c.Kubeconfig}
	if c.File != "" {
		config = strings.Replace(c.File, `":8080"`, strconv.Quote(address), 1)
		args = append(args, "--bus", c.Bus.(*bus).URL)
	}
	file := filepath.Join(dir, "kubecdc.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	stderr, err := os.Create(a.log)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close() // The process has its own.
	if c.Binary == "" {
		c.Binary = buildAgent(t)
	}
	a.argv = append([]string{c.Binary, "run", "--config", file}, args...)
	cmd := exec.Command(a.argv[0], a.argv[1:]...)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_RUNTIME_DIR="+dir) // Where it keeps what it was given no place for.
	cmd.Env = append(cmd.Env, c.Env...)
	cmd.Stderr = stderr
	if c.Bus == nil {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		t.Cleanup(func() { _ = r.Close() })
		a.stdout, cmd.Stdout = r, w
	}
	if a.process, err = start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.finish(t) })
	return a
}

// finish stops the agent if that has not been done, and looks at what it leaves behind.
func (a *agent) finish(t testing.TB) {
	t.Helper()
	a.explain(t)
	if !a.ended() {
		if err := a.stop(time.Minute); err != nil {
			t.Errorf("agent, asked to stop: %v", err)
		}
	} else if !a.killed && (a.err != nil || !a.asked) {
		t.Errorf("the agent has ended by itself: %v", a.endedWith())
	}
	if a.early != nil {
		t.Errorf("agent: %v", a.early)
	}
	log, err := os.ReadFile(a.log)
	if err != nil {
		t.Error(err)
	}
	for _, found := range newNeedles(secretMark).in(message{Body: log}) {
		t.Errorf("agent's log: %s", found)
	}
	findCrash(t, log)
	if t.Failed() {
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		t.Logf("end of the agent's log:\n%s", strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}

// findCrash fails the test if an agent's output has a data race, a panic or an error of the runtime in it.
func findCrash(t testing.TB, output []byte) {
	t.Helper()
	for _, sign := range []string{"DATA RACE", "panic: ", "fatal error: "} {
		if i := bytes.Index(output, []byte(sign)); i >= 0 {
			t.Errorf("agent's log: %.3000s", output[i:])
		}
	}
}

// explain logs, where the test has failed, what the agent that runs says of itself, and what it is doing.
func (a *agent) explain(t testing.TB) {
	if !t.Failed() || a.ended() || a.url == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	text, err := a.get(ctx, "/readyz")
	t.Logf("/readyz of the agent (%v):\n%s", err, text)
	goroutines, err := exec.CommandContext(ctx, a.argv[0], "profile", "goroutine", "--debug", "1", "--agent", a.url).CombinedOutput()
	t.Logf("goroutines of the agent (%v):\n%s", err, goroutines)
}

// stop sends SIGTERM and returns how the process ended; after d it is killed.
func (a *agent) stop(d time.Duration) error {
	a.running()
	a.asked = true
	_ = a.cmd.Process.Signal(syscall.SIGTERM) // Fails only if it has ended.
	err := a.wait(d)
	if !a.ended() {
		a.kill()
	}
	return err
}

// ready waits until /readyz says so.
func (a *agent) ready(t testing.TB) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if a.ended() {
			t.Fatalf("the agent has ended: %v", a.err)
		}
		_, err := a.get(t.Context(), "/readyz")
		return err
	})
}

func (a *agent) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body), err
}

// metric is the sum of a metric's series that have all of the labels, each written as in `op="u"`.
func (a *agent) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	text, err := a.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
series:
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 {
			continue
		}
		series, value := line[:cut], line[cut+1:]
		if head, _, _ := strings.Cut(series, "{"); head != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue series
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, errors.New("no metric " + name)
	}
	return sum, nil
}
