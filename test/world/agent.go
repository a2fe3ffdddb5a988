package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// ClusterName has a dot, which must be escaped in subjects.
const ClusterName = "e2e.test"

// AgentConfig has the settings that differ between the agents of the tests.
type AgentConfig struct {
	Watch      string      // YAML, the value of watch.
	Snapshot   string      // "" is initial.
	Bus        Destination // Nil is stdout.
	Kubeconfig string      // "" is the admin's.
	Checkpoint string      // YAML, the value of checkpoint. "" is a file for this agent, "{}" the agent's default.
	Extra      string      // More YAML, at the top level.
	Env        []string    // Additional environment variables, each KEY=value.
	File       string      // A whole configuration instead. StartAgent replaces its server.address and bus.
	Binary     string      // "" is the agent of this tree.
}

// Agent is an agent as a child process.
type Agent struct {
	*Process
	URL    string
	Log    string    // The file with its stderr.
	Stdout io.Reader // Set for an agent without a bus.

	Argv   []string
	Killed bool  // Whether the test killed it: its exit status is then ignored.
	asked  bool  // Whether the test asked it to stop.
	early  error // The error if it had ended by itself before the test stopped or killed it.
	logged int64 // The size of Log when the process was started.
	starts []time.Time
}

// StartAgent starts an agent, and stops it when the test ends. The agent must then end with exit
// code 0.
func StartAgent(t testing.TB, p *Plane, c AgentConfig) *Agent {
	t.Helper()
	dir := t.TempDir()
	a := &Agent{Log: filepath.Join(dir, "agent.log")}
	address := "127.0.0.1:" + strconv.Itoa(FreePort(t))
	a.URL = "http://" + address
	destination := "stdout: {}"
	if c.Bus != nil {
		destination = c.Bus.Config()
	}
	if c.Snapshot == "" {
		c.Snapshot = "initial"
	}
	if c.Checkpoint == "" {
		c.Checkpoint = fmt.Sprintf("{file: {path: %q}}", filepath.Join(dir, "checkpoint.json"))
	}
	if c.Kubeconfig == "" {
		c.Kubeconfig = p.Kubeconfig
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
`, ClusterName, c.Watch, c.Snapshot, destination, c.Checkpoint, address, c.Extra)
	args := []string{"--kubeconfig", c.Kubeconfig}
	if c.File != "" {
		config = strings.Replace(c.File, `":8080"`, strconv.Quote(address), 1)
		args = append(args, "--bus", c.Bus.(*Bus).URL)
	}
	file := filepath.Join(dir, "kubecdc.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	stderr, err := os.Create(a.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close() // The process has its own.
	if c.Binary == "" {
		c.Binary = build.SharedAgent(t)
	}
	a.Argv = append([]string{c.Binary, "run", "--config", file}, args...)
	cmd := exec.Command(a.Argv[0], a.Argv[1:]...) //nolint:noctx // the test ends it
	// For files without a configured path.
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_RUNTIME_DIR="+dir)
	cmd.Env = append(cmd.Env, c.Env...)
	cmd.Stderr = stderr
	if c.Bus == nil {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		t.Cleanup(func() { _ = r.Close() })
		a.Stdout, cmd.Stdout = r, w
	}
	a.starts = append(a.starts, time.Now())
	a.Process, err = StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Finish(t) })
	return a
}

// Finish stops the agent if it is running, and checks its exit status and its log.
func (a *Agent) Finish(t testing.TB) {
	t.Helper()
	a.explain(t)
	if !a.Ended() {
		if err := a.Stop(time.Minute); err != nil {
			t.Errorf("agent, asked to stop: %v", err)
		}
	} else if !a.Killed && (a.Err != nil || !a.asked) {
		t.Errorf("the agent has ended by itself: %v", a.endedWith())
	}
	if a.early != nil {
		t.Errorf("agent: %v", a.early)
	}
	log, err := os.ReadFile(a.Log)
	if err != nil {
		t.Error(err)
	}
	for _, found := range oracle.NewNeedles(SecretMark).In(oracle.Message{Body: log}) {
		oracle.Fail(t, "agent's log: %s", found)
	}
	FindCrash(t, log)
	if t.Failed() {
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		t.Logf("end of the agent's log:\n%s", strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}

// FindCrash fails the test if an agent's output contains a data race, a panic or a fatal error of
// the runtime.
func FindCrash(t testing.TB, output []byte) {
	t.Helper()
	for _, sign := range []string{"DATA RACE", "panic: ", "fatal error: "} {
		if i := bytes.Index(output, []byte(sign)); i >= 0 {
			t.Errorf("agent's log: %.3000s", output[i:])
		}
	}
}

// explain logs the readiness and the goroutines of a running agent if the test has failed.
func (a *Agent) explain(t testing.TB) {
	if !t.Failed() || a.Ended() || a.URL == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	text, err := a.Get(ctx, "/readyz")
	t.Logf("/readyz of the agent (%v):\n%s", err, text)
	goroutines, err := exec.CommandContext(ctx, a.Argv[0], "profile", "goroutine", "--debug", "1", "--agent",
		a.URL).CombinedOutput()
	t.Logf("goroutines of the agent (%v):\n%s", err, goroutines)
}

// Stop sends SIGTERM and returns the error of the process. It kills the process after d. Stop first
// waits for a line in the log: SIGTERM ends a process that does not handle the signal yet.
func (a *Agent) Stop(d time.Duration) error {
	a.running()
	_ = wait.For(context.Background(), 10*time.Second, func() error {
		if log, err := os.Stat(a.Log); err != nil || log.Size() > a.logged || a.Ended() {
			return nil
		}
		return errors.New("nothing is logged yet")
	})
	a.asked = true
	_ = a.Cmd.Process.Signal(syscall.SIGTERM) // Fails only if it has ended.
	err := a.Wait(d)
	if !a.Ended() {
		a.Kill()
	}
	return err
}

// Ready waits until /readyz returns 200.
func (a *Agent) Ready(t testing.TB) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		if a.Ended() {
			t.Fatalf("the agent has ended: %v", a.Err)
		}
		_, err := a.Get(t.Context(), "/readyz")
		return err
	})
}

// Captured waits until the agent logs that the bus has the first snapshot. In a checkpoint saved
// earlier the snapshot is unfinished, even if the bus has its end.
func (a *Agent) Captured(t testing.TB) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		log, err := os.ReadFile(a.Log)
		if err == nil &&
			!bytes.Contains(log[a.logged:], []byte(`"msg":"first snapshot complete, waiting for changes"`)) {
			err = errors.New("the first snapshot is not complete")
		}
		return err
	})
}

// Get requests a path of the agent and returns the body. A status other than 200 is an error.
func (a *Agent) Get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL+path, http.NoBody)
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

// Metric returns the sum of a metric's series that have all of the labels, each written as in
// `op="u"`.
func (a *Agent) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	text, err := a.Get(ctx, "/metrics")
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

// Crash kills the agent, which must be running.
func (a *Agent) Crash() {
	a.running()
	a.Killed = true
	a.Kill()
}

// Again restarts the agent with the same arguments, environment and log.
func (a *Agent) Again(t testing.TB) {
	t.Helper()
	stderr, err := os.OpenFile(a.Log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close() // The process has its own.
	log, err := stderr.Stat()
	if err != nil {
		t.Fatal(err)
	}
	a.logged = log.Size()
	cmd := exec.Command(a.Argv[0], a.Argv[1:]...) //nolint:noctx // The test stops or kills it.
	cmd.Env = a.Cmd.Env
	cmd.Stderr = stderr
	a.starts = append(a.starts, time.Now())
	a.Process, err = StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	a.Killed, a.asked = false, false
}

// restarted reports whether the agent was started between two times.
func (a *Agent) restarted(from, to time.Time) bool {
	return slices.ContainsFunc(a.starts, func(at time.Time) bool { return at.After(from) && at.Before(to) })
}

// Reconfigure changes the agent's configuration file, for the next start.
func (a *Agent) Reconfigure(t testing.TB, old, replacement string) {
	t.Helper()
	file := a.Argv[slices.Index(a.Argv, "--config")+1]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("the configuration has no %q:\n%s", old, text)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Snapshot requests a snapshot from the agent, and returns the ids.
func (a *Agent) Snapshot(t testing.TB, resource, namespace string) []string {
	t.Helper()
	ids, err := a.RequestSnapshot(t.Context(), resource, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// RequestSnapshot is Snapshot for an agent that may refuse: it is still catching up.
func (a *Agent) RequestSnapshot(ctx context.Context, resource, namespace string) ([]string, error) {
	var said bytes.Buffer
	command := exec.CommandContext(ctx, a.Argv[0], "snapshot", resource, "-n", namespace, "-o", "json", "--agent",
		a.URL)
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kubecdc snapshot: %w, %s", err, said.String())
	}
	var answer struct {
		Snapshots []struct {
			Snapshot string `json:"snapshot"`
		} `json:"snapshots"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("kubecdc snapshot: %w: %s", err, out)
	}
	var ids []string
	for _, started := range answer.Snapshots {
		ids = append(ids, started.Snapshot)
	}
	return ids, nil
}

// GiveUp moves each event to the dead letters that the agent could not send even alone.
func (a *Agent) GiveUp(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, a.Argv[0], "dead-letter", "-o", "json", "--agent", a.URL).Output()
	if err != nil {
		return fmt.Errorf("kubecdc dead-letter: %w, %s", err, out)
	}
	var stuck []struct {
		ID       string
		Attempts int
		Isolated bool
	}
	if err := json.Unmarshal(out, &stuck); err != nil {
		return fmt.Errorf("kubecdc dead-letter: %w: %s", err, out)
	}
	for _, e := range stuck {
		if e.Isolated && e.Attempts > 0 {
			// This fails during an attempt to send the event. The next list then has the event
			// again.
			_ = exec.CommandContext(ctx, a.Argv[0], "dead-letter", e.ID, "--agent", a.URL).Run()
		}
	}
	return nil
}
