package agent_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent"
)

// In a pod of the chart, the environment has the agent's port. The command line overrides it.
func TestTheAgentOfThePodIsFound(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("KUBECDC_AGENT", "127.0.0.1:9090")
	for named, want := range map[string]string{
		"":                   "http://127.0.0.1:9090",
		"http://127.0.0.1:1": "http://127.0.0.1:1",
	} {
		if server, err := agent.FindServer(named); server != want || err != nil {
			t.Errorf("named %q: got %s, %v, want %s", named, server, err, want)
		}
	}
	t.Setenv("KUBECDC_AGENT", "ftp://nowhere")
	if _, err := agent.FindServer(""); err == nil ||
		!strings.HasPrefix(err.Error(), "KUBECDC_AGENT: must be http://host:port") {
		t.Errorf("got %v", err)
	}
}

// serverOf returns the HTTP server of an agent that reports a start and a socket.
func serverOf(t *testing.T, started time.Time, socket string) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(admin.New(admin.Options{
		Registry: prometheus.NewRegistry(), Checks: admin.NewChecks(nil),
		Status: func() admin.Status { return admin.Status{Started: started, Socket: socket} },
	}).Handler())
	s.Config.ReadHeaderTimeout = time.Minute
	t.Cleanup(s.Close)
	return s
}

// A command is sent to the agent whose HTTP server was named, or to none. A forwarded port leads to
// another machine, and the socket there may have the path of a socket of this machine.
func TestSocketOfTheNamedAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "cdc") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, started := filepath.Join(dir, "agent.sock"), time.Now()
	here, socket := serverOf(t, started, path), serverOf(t, started, path)
	_ = socket.Listener.Close() // the socket replaces it
	socket.Listener, err = admin.OpenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	here.Start()
	socket.Start()
	if at, err := agent.FindSocket(t.Context(), here.URL); err != nil || at != path {
		t.Errorf("got %s, %v", at, err)
	}
	for path, want := range map[string]string{
		path:                      "on its own machine and from its own user only: for a pod, use kubectl exec POD -- /kubecdc: another agent is there",
		"/run/kubecdc/agent.sock": "no such file or directory",
		"":                        "has no socket for commands",
	} {
		forwarded := serverOf(t, started.Add(-time.Hour), path)
		forwarded.Start()
		if _, err := agent.FindSocket(t.Context(), forwarded.URL); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("socket %q: got %v, want %s", path, err, want)
		}
	}
	for _, named := range []string{"/run/a.sock", "unix:/run/a.sock"} {
		if at, err := agent.FindSocket(t.Context(), named); at != "/run/a.sock" || err != nil {
			t.Errorf("%s: got %s, %v", named, at, err)
		}
	}
	t.Setenv(admin.SocketVariable, "/run/b.sock")
	if at, err := agent.FindSocket(t.Context(), ""); at != "/run/b.sock" || err != nil {
		t.Errorf("got %s, %v", at, err)
	}
}
