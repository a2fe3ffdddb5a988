package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent"
)

// agentAnswering is the socket of what listens where an agent should, and answers to POST
// /snapshot.
func agentAnswering(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /snapshot", answer)
	return listening(t, mux)
}

// listening is the socket that a handler answers at.
func listening(t *testing.T, h http.Handler) string {
	t.Helper()
	at, err := admin.OpenSocket(t.Context(), filepath.Join(shortDir(t), "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: at, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
	s.Start()
	t.Cleanup(s.Close)
	return at.Path()
}

// shortDir is a directory for a socket, whose path must not be long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cdc") //nolint:usetesting // the path of t.TempDir has the name of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestSnapshotsAreTold(t *testing.T) {
	var asked string
	agent := agentAnswering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = string(body)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&admin.SnapshotAnswer{
			Snapshots: []admin.StartedSnapshot{
				{Scope: "deployments.apps/shop", Snapshot: "48211-1763737200", Objects: 12},
				{Scope: "pods", Snapshot: "48190-1763737100", Objects: 3000, Running: true},
			},
			Errors: []string{"services: its first list is not loaded yet", "secrets: it is still catching up"},
		})
	})
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"snapshot", "deploy", "-n", "shop", "--agent", agent}, &stdout, &stderr)
	if want := `{"resource":"deployments.apps","namespace":"shop"}`; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	const want = `SCOPE                   SNAPSHOT           OBJECTS   STATUS
deployments.apps/shop   48211-1763737200   12        begun
pods                    48190-1763737100   3000      in progress already
`
	if diff := cmp.Diff(want, stdout.String()); diff != "" {
		t.Error(diff)
	}
	if want := "kubecdc: the agent at " + agent +
		": services: its first list is not loaded yet\n  secrets: it is still catching up\n"; code != exitFailed ||
		stderr.String() != want {
		t.Errorf("exit code %d, %q, want %q", code, &stderr, want)
	}

	stdout.Reset()
	code = run(t.Context(), []string{"snapshot", "--agent", agent, "-o", "json"}, &stdout, io.Discard)
	if code != exitFailed || !strings.Contains(stdout.String(), `"running": true`) {
		t.Errorf("exit code %d, %s", code, &stdout)
	}
	if want := `{"resource":"","namespace":""}`; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
}

func TestWhatIsNoAgentIsSaidToBeNone(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"another server": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"an old agent":   http.NotFound,
		"other JSON":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) },
	} {
		agent := agentAnswering(t, handler)
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"snapshot", "--agent", agent}, io.Discard, &stderr)
		if code != exitFailed || !strings.Contains(stderr.String(), "the server at "+agent+" responds with ") ||
			!strings.Contains(stderr.String(), "it is not an agent, or its release has no") {
			t.Errorf("%s: exit code %d, %s", name, code, &stderr)
		}
	}
}

// The agent of this machine is found, whichever port it has got; of several, one has to be named.
func TestTheAgentOfThisMachineIsFound(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	dir := shortDir(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	if server, err := agent.FindServer(""); server != agent.DefaultServer || err != nil {
		t.Errorf("got %s, %v", server, err)
	}
	first := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL))
	address := first.says(t, `"server_address":"([^"]+)"`)[1]
	first.says(t, "connected to bus")
	if server, err := agent.FindServer(""); server != "http://"+address || err != nil {
		t.Errorf("got %s, %v, want %s", server, err, address)
	}
	// Until it has discovered what there is, it is loading.
	var answer string
	waitUntil(t, func() bool {
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"snapshot", "pods"}, io.Discard, &stderr)
		answer = stderr.String()
		return code == exitFailed && !strings.Contains(answer, "still loading")
	})
	if want := "the agent at " + filepath.Join(dir, "kubecdc", "agent.sock") +
		": pods is not captured"; !strings.Contains(answer, want) {
		t.Errorf("%q is not in: %s", want, answer)
	}

	second := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidB, nil).URL))
	second.says(t, "connected to bus")
	if _, err := agent.FindServer(""); err == nil ||
		!strings.Contains(err.Error(), "2 agents run here; name one with --agent:\n") ||
		!strings.Contains(err.Error(), "http://"+address+" of ") {
		t.Errorf("got %v", err)
	}
}

// An agent that cannot reach its API server has nothing to read yet.
func TestAnAgentThatIsLoading(t *testing.T) {
	api := fakeAPI(t, "", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, api.URL), "--data-dir", t.TempDir())
	server := c.says(t, `"server_address":"([^"]+)"`)[1]
	at, err := agent.FindSocket(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	a, err := admin.NewSocketClient(at).Snapshot(t.Context(), admin.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(a.Errors, "\n"); !strings.Contains(got,
		"it is still loading: resources are not discovered yet") {
		t.Errorf("got %q", got)
	}
}

// An agent that is to have a socket at a place does not run without it.
func TestASocketThatIsTaken(t *testing.T) {
	path := filepath.Join(shortDir(t), "agent.sock")
	t.Setenv(admin.SocketVariable, path)
	first := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL))
	first.says(t, `"socket":"`+path+`"`)
	second := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidB, nil).URL))
	if code := second.wait(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	second.says(t, admin.SocketVariable+": "+path+": another agent uses it")

	_ = first.process.Kill()
	first.wait()
	third := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidB, nil).URL))
	third.says(t, `"socket":"`+path+`"`)
}
