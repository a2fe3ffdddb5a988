package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// A run leaves a checkpoint beside its records, and the next run resumes from it. A checkpoint in use cannot be reset.
func TestARunGoesOnFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "checkpoint.json")
	config := kubeconfig(t, fakeAPI(t, uidA, nil).URL)
	place := regexp.QuoteMeta(`"kept_in":"checkpoint file ` + file + `"`)
	first := launch(t, "run", "--kubeconfig", config, "--data-dir", dir)
	first.says(t, `"msg":"no checkpoint yet, starting from scratch",`+place)
	first.says(t, "connected to bus")

	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"checkpoint", "reset", "--data-dir", dir}, io.Discard, &stderr); code != exitFailed ||
		!regexp.MustCompile(`checkpoint\.json: in use by another kubecdc \(pid \d+\): stop that one`).MatchString(stderr.String()) {
		t.Errorf("reset under an agent: exit code %d, %s", code, &stderr)
	}
	if code := first.stop(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C:\n%s", code, first.stderr)
	}

	write(t, file, &checkpoint.Document{
		Identity: checkpoint.Identity{ClusterUID: uidA, Cluster: uidA, Bus: "the embedded JetStream"},
		Saved:    time.Now().Add(-12 * time.Second),
		Scopes:   map[string]checkpoint.Scope{"pods": {Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true, ResourceVersion: 7}},
	})
	second := launch(t, "run", "--kubeconfig", config, "--data-dir", dir)
	second.says(t, `"msg":"resuming",`+place+`,"scopes":1,"saved":"1[2-9]s ago"`)
	if code := second.stop(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C:\n%s", code, second.stderr)
	}

	// An agent does not resume from the checkpoint of another cluster.
	write(t, file, &checkpoint.Document{Identity: checkpoint.Identity{ClusterUID: uidB, Cluster: uidB}})
	third := launch(t, "run", "--kubeconfig", config, "--data-dir", dir)
	if code := third.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	third.says(t, `kubecdc: checkpoint file .*checkpoint\.json: it belongs to .*cluster .*`+uidB+`.*'kubecdc checkpoint reset'`)
}

func write(t *testing.T, file string, d *checkpoint.Document) {
	t.Helper()
	d.FormatVersion, d.Writer, d.Save = checkpoint.FormatVersion, "test", 1
	data, err := d.Encode()
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The checkpoint commands read and reset a ConfigMap through the API server. They cannot detect a running agent.
func TestACheckpointInAConfigMap(t *testing.T) {
	d := &checkpoint.Document{
		FormatVersion: checkpoint.FormatVersion, Identity: checkpoint.Identity{ClusterUID: uidA, Cluster: "prod"},
		Scopes: map[string]checkpoint.Scope{"pods": {Version: "v1", Resource: "pods", Kind: "Pod", ResourceVersion: 7}},
	}
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var written string
	api := fakeAPI(t, uidA, nil)
	handler := api.Config.Handler
	api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/cdc/configmaps/kubecdc-checkpoint" {
			handler.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			written = string(body)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "kubecdc-checkpoint", "namespace": "cdc", "resourceVersion": "5", "uid": "u"},
			"data": map[string]string{"checkpoint.json": string(data)},
		})
	})
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubecdc.dev/v1\ncheckpoint: {configMap: {namespace: cdc}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config", file, "--kubeconfig", kubeconfig(t, api.URL)}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"checkpoint", "show"}, args...), &stdout, &stderr); code != exitOK {
		t.Fatalf("show: exit code %d, %s", code, &stderr)
	}
	for _, want := range []string{"kept in   checkpoint ConfigMap cdc/kubecdc-checkpoint\n", "cluster   prod (uid " + uidA + ")\n", "\npods "} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &stdout)
		}
	}
	stdout.Reset()
	if code := run(t.Context(), append([]string{"checkpoint", "reset"}, args...), &stdout, &stderr); code != exitOK || written == "" || strings.Contains(written, "checkpoint.json") {
		t.Fatalf("reset: exit code %d, %s; written is %s", code, &stderr, written)
	}
	if want := "checkpoint ConfigMap cdc/kubecdc-checkpoint: removed, with 1 scopes.\n" +
		"The next start takes a new snapshot of all that is captured.\nA running agent stops when it detects this.\n"; stdout.String() != want {
		t.Errorf("reset: got %q", &stdout)
	}
}
