package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/config"
)

// agentAnswering is the socket of what listens where an agent should, and answers to POST /snapshot.
func agentAnswering(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /snapshot", answer)
	return listening(t, mux)
}

// listening is the socket that a handler answers at.
func listening(t *testing.T, h http.Handler) string {
	t.Helper()
	at, err := listenUnix(t.Context(), filepath.Join(shortDir(t), "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: at, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
	s.Start()
	t.Cleanup(s.Close)
	return at.path
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
		answer(w, http.StatusOK, &snapshotAnswer{
			Snapshots: []startedSnapshot{
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
	if want := "kubecdc: the agent at " + agent + ": services: its first list is not loaded yet\n  secrets: it is still catching up\n"; code != exitFailed || stderr.String() != want {
		t.Errorf("exit code %d, %q, want %q", code, &stderr, want)
	}

	stdout.Reset()
	if code := run(t.Context(), []string{"snapshot", "--agent", agent, "-o", "json"}, &stdout, io.Discard); code != exitFailed || !strings.Contains(stdout.String(), `"running": true`) {
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
		if code != exitFailed || !strings.Contains(stderr.String(), "what listens at "+agent+" answers ") || !strings.Contains(stderr.String(), "it is no agent, or one of a release without") {
			t.Errorf("%s: exit code %d, %s", name, code, &stderr)
		}
	}
}

// Orders come over the socket alone: over HTTP nobody gives one, from whatever address. 127.0.0.6 is where a service mesh's sidecar
// hands on what comes from the network.
func TestOrdersComeFromHere(t *testing.T) {
	set, err := idleSet(config.Default(), &rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(serverOptions{registry: prometheus.NewRegistry(), checks: newChecks(), set: set, pprof: true})
	for _, order := range []struct{ method, path string }{
		{http.MethodPost, "/snapshot"}, {http.MethodGet, "/debug/pprof/"}, {http.MethodGet, "/debug/pprof/heap"}, {http.MethodGet, "/debug/pprof/trace"},
	} {
		for _, peer := range []string{"127.0.0.6:5000", "127.0.0.1:5000", "[::1]:5000", "10.0.0.7:5000", "@"} {
			for _, host := range []string{"localhost", "localhost:8080", "127.0.0.1:8080", "kubecdc.kubecdc.svc:8080", "evil.example"} {
				r := httptest.NewRequestWithContext(t.Context(), order.method, order.path, strings.NewReader("{}"))
				r.RemoteAddr, r.Host = peer, host
				w := httptest.NewRecorder()
				s.Handler.ServeHTTP(w, r)
				if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "kubectl exec POD -- /kubecdc snapshot") {
					t.Errorf("%s from %s to %s: got %d %.100s", order.path, peer, host, w.Code, w.Body)
				}
			}
		}
		w := httptest.NewRecorder()
		s.orders.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), order.method, order.path+"?seconds=0.01", strings.NewReader("{}")))
		if w.Code == http.StatusForbidden || w.Code == http.StatusMethodNotAllowed || order.path != "/snapshot" && w.Code != http.StatusOK {
			t.Errorf("%s at the socket: got %d %.100s", order.path, w.Code, w.Body)
		}
	}
}

// Nobody else on the machine can open the socket. One that a killed agent left behind is replaced, one in use is not.
func TestSocketIsPrivateAndOfOneAgent(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "agent.sock")
	first, err := listenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || runtime.GOOS != "windows" && info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, mode %v", err, info.Mode())
	}
	if _, err := listenUnix(t.Context(), path); !errors.Is(err, errSocketTaken) {
		t.Errorf("got %v, want errSocketTaken", err)
	}
	first.Listener.(*net.UnixListener).SetUnlinkOnClose(false) // as one who is killed does
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	second, err := listenUnix(t.Context(), path)
	if err != nil {
		t.Fatalf("after the first one was killed: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}

	file := writeFile(t, filepath.Join(dir, "precious"), "content")
	for path, want := range map[string]string{
		file: "is there already, and no socket", "agent.sock": "must be an absolute path",
		filepath.Join(dir, strings.Repeat("x", 200)): "must have at most 103 bytes, as the path of a socket, and has ",
	} {
		if _, err := listenUnix(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

// Without a place of their own several agents of a user have each a socket, in a directory that is theirs.
func TestSocketsOfSeveralAgents(t *testing.T) {
	root := shortDir(t)
	getenv := func(name string) string { return map[string]string{"XDG_RUNTIME_DIR": root}[name] }
	for _, want := range []string{"agent.sock", "agent-2.sock", "agent-3.sock"} {
		s, err := openSocket(t.Context(), getenv)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got := filepath.Base(s.path); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(filepath.Join(root, "kubecdc"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := openSocket(t.Context(), getenv); err == nil || !strings.Contains(err.Error(), "must be a directory of user ") {
		t.Errorf("in a directory that others can write to: %v", err)
	}
}

// The agent of this machine is found, whichever port it has got; of several, one has to be named.
func TestTheAgentOfThisMachineIsFound(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	dir := shortDir(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	if agent, err := findAgent(""); agent != defaultAgent || err != nil {
		t.Errorf("got %s, %v", agent, err)
	}
	first := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL))
	address := first.says(t, `"server_address":"([^"]+)"`)[1]
	first.says(t, "connected to bus")
	if agent, err := findAgent(""); agent != "http://"+address || err != nil {
		t.Errorf("got %s, %v, want %s", agent, err, address)
	}
	// Until it has discovered what there is, it is loading.
	var answer string
	waitUntil(t, func() bool {
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"snapshot", "pods"}, io.Discard, &stderr)
		answer = stderr.String()
		return code == exitFailed && !strings.Contains(answer, "still loading")
	})
	if want := "the agent at " + filepath.Join(dir, "kubecdc", "agent.sock") + ": pods is not captured"; !strings.Contains(answer, want) {
		t.Errorf("%q is not in: %s", want, answer)
	}

	second := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidB, nil).URL))
	second.says(t, "connected to bus")
	if _, err := findAgent(""); err == nil || !strings.Contains(err.Error(), "2 agents run here; name one with --agent:\n") || !strings.Contains(err.Error(), "http://"+address+" of ") {
		t.Errorf("got %v", err)
	}
}

// In a pod of the chart the environment has the agent's port; what is named on the command line counts more.
func TestTheAgentOfThePodIsFound(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("KUBECDC_AGENT", "127.0.0.1:9090")
	for named, want := range map[string]string{"": "http://127.0.0.1:9090", "http://127.0.0.1:1": "http://127.0.0.1:1"} {
		if agent, err := findAgent(named); agent != want || err != nil {
			t.Errorf("named %q: got %s, %v, want %s", named, agent, err, want)
		}
	}
	t.Setenv("KUBECDC_AGENT", "ftp://nowhere")
	if _, err := findAgent(""); err == nil || !strings.HasPrefix(err.Error(), "KUBECDC_AGENT: must be http://host:port") {
		t.Errorf("got %v", err)
	}
}

// An agent that cannot reach its API server has nothing to read yet.
func TestAnAgentThatIsLoading(t *testing.T) {
	api := fakeAPI(t, "", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, api.URL), "--data-dir", t.TempDir())
	agent := c.says(t, `"server_address":"([^"]+)"`)[1]
	at, err := findSocket(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	a, err := askSnapshot(t.Context(), at, snapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(a.Errors, "\n"); !strings.Contains(got, "it is still loading: resources are not discovered yet") {
		t.Errorf("got %q", got)
	}
}

// The order goes to the agent whose HTTP server was named, or to none: a port that is forwarded leads to another machine, and its
// socket may have the name of one that is here.
func TestOrdersGoToTheAgentThatIsMeant(t *testing.T) {
	dir := shortDir(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL))
	here := c.says(t, `"server_address":"([^"]+)"`)[1]
	if at, err := findSocket(t.Context(), here); err != nil || at != filepath.Join(dir, "kubecdc", "agent.sock") {
		t.Errorf("got %s, %v", at, err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "kubecdc", "agent.sock"): "on its own machine and from its own user: in its pod, kubectl exec POD -- /kubecdc: another agent is there",
		"/run/kubecdc/agent.sock":                   "no such file or directory",
		"":                                          "has no socket for orders",
	} {
		forwarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			showStatus(w, r, func() statuses { return statuses{Started: time.Now().Add(-time.Hour), Socket: path} })
		}))
		if _, err := findSocket(t.Context(), forwarded.URL); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("socket %q: got %v, want %s", path, err, want)
		}
		forwarded.Close()
	}
	for _, named := range []string{"/run/a.sock", "unix:/run/a.sock"} {
		if at, err := findSocket(t.Context(), named); at != "/run/a.sock" || err != nil {
			t.Errorf("%s: got %s, %v", named, at, err)
		}
	}
	t.Setenv(socketVariable, "/run/b.sock")
	if at, err := findSocket(t.Context(), ""); at != "/run/b.sock" || err != nil {
		t.Errorf("got %s, %v", at, err)
	}
}

// An agent that is to have a socket at a place does not run without it.
func TestASocketThatIsTaken(t *testing.T) {
	path := filepath.Join(shortDir(t), "agent.sock")
	t.Setenv(socketVariable, path)
	first := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL))
	first.says(t, `"socket":"`+path+`"`)
	second := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidB, nil).URL))
	if code := second.wait(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	second.says(t, socketVariable+": "+path+": another agent takes orders there")

	_ = first.process.Kill()
	first.wait()
	third := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidB, nil).URL))
	third.says(t, `"socket":"`+path+`"`)
}
