package chart_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/kubecdc/kubecdc/test/chart"
)

// checkpointAPI is an API server that has one checkpoint, in a ConfigMap.
type checkpointAPI struct {
	mu       sync.Mutex
	requests []string // such as "PUT /api/v1/…"
	written  string   // the last body
}

func (a *checkpointAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r.Method+" "+r.URL.Path)
	if r.Method != http.MethodGet {
		a.written = string(body)
	}
	w.Header().Set("Content-Type", "application/json")
	// A damaged checkpoint is reset, too: its content does not matter here.
	fmt.Fprint(w,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kubecdc-checkpoint","namespace":"kubecdc","resourceVersion":"5"},
		"data":{"checkpoint.json":"{}","other":"stays"}}`)
}

// TestRunbookResetsTheCheckpoint runs the commands of docs/guides/backup.md in a shell, with the
// chart's configuration. They must reset the agents' own checkpoint.
func TestRunbookResetsTheCheckpoint(t *testing.T) {
	dir, err := chart.Dir()
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile(filepath.Join(dir, "..", "..", "docs", "guides", "backup.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^kubectl get configmap .*\| kubecdc checkpoint reset .*$`).
		FindString(string(runbook))
	if line == "" {
		t.Fatal("docs/guides/backup.md has no command line that resets the checkpoint")
	}
	api := &checkpointAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	tools := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(tools, name)
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	rendered := named(newHelm(t).objects(t, release, "--set", "bus.nats.url=nats://nats.messaging:4222"), "ConfigMap",
		"kubecdc")
	write("rendered.yaml", text(rendered, "data", "kubecdc.yaml"))
	write("kubectl", `#!/bin/sh
[ "$*" = "get configmap -n kubecdc kubecdc -o jsonpath={.data.kubecdc\.yaml}" ] || { echo "unexpected: $*" >&2; exit 1; }
exec cat "$(dirname "$0")/rendered.yaml"
`)
	if err := os.Symlink(buildAgent(t).path, filepath.Join(tools, "kubecdc")); err != nil {
		t.Fatal(err)
	}
	config := write("kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "dev",
"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
"users": [{"name": "u", "user": {}}]}`, server.URL))
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Env = []string{"PATH=" + tools + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "KUBECONFIG=" + config}
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(said), "checkpoint ConfigMap kubecdc/kubecdc-checkpoint: removed") {
		t.Fatalf("%s: %v\n%s", line, err, said)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	last := api.requests[len(api.requests)-1]
	if last != "PUT /api/v1/namespaces/kubecdc/configmaps/kubecdc-checkpoint" ||
		strings.Contains(api.written, "checkpoint.json") ||
		!strings.Contains(api.written, "stays") {
		t.Errorf("requests: %v; the last one wrote %s", api.requests, api.written)
	}
}
