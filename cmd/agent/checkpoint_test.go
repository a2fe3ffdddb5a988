package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// A run leaves a checkpoint beside its records, and the next run resumes from it. A checkpoint in
// use cannot be reset.
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
	code := run(t.Context(), []string{"checkpoint", "reset", "--data-dir", dir}, io.Discard, &stderr)
	if code != exitFailed ||
		!regexp.MustCompile(`checkpoint\.json: in use by another kubecdc \(pid \d+\): stop that one`).
			MatchString(stderr.String()) {
		t.Errorf("reset under an agent: exit code %d, %s", code, &stderr)
	}
	if code := first.stop(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C:\n%s", code, first.stderr)
	}

	write(t, file, &checkpoint.Document{
		Identity: checkpoint.Identity{ClusterUID: uidA, Cluster: uidA, Bus: "the embedded JetStream"},
		Saved:    time.Now().Add(-12 * time.Second),
		Scopes: map[string]checkpoint.Scope{"pods": {
			Version:         "v1",
			Resource:        "pods",
			Kind:            "Pod",
			Namespaced:      true,
			ResourceVersion: 7,
		}},
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
	third.says(t,
		`kubecdc: checkpoint file .*checkpoint\.json: it belongs to .*cluster .*`+uidB+`.*'kubecdc checkpoint reset'`)
}

func write(t *testing.T, file string, d *checkpoint.Document) {
	t.Helper()
	d.FormatVersion = checkpoint.FormatVersion
	d.Writer = "test"
	d.Save = 1
	data, err := d.Encode()
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The checkpoint commands read and reset a ConfigMap through the API server. They cannot detect a
// running agent.
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
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
				"name":            "kubecdc-checkpoint",
				"namespace":       "cdc",
				"resourceVersion": "5",
				"uid":             "u",
			},
			"data": map[string]string{"checkpoint.json": string(data)},
		})
	})
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubecdc.dev/v1\ncheckpoint: {configMap: {namespace: cdc}}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config", file, "--kubeconfig", kubeconfig(t, api.URL)}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"checkpoint", "show"}, args...), &stdout, &stderr); code != exitOK {
		t.Fatalf("show: exit code %d, %s", code, &stderr)
	}
	for _, want := range []string{
		"kept in   checkpoint ConfigMap cdc/kubecdc-checkpoint\n", "cluster   prod (uid " + uidA + ")\n", "\npods ",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &stdout)
		}
	}
	stdout.Reset()
	if code := run(t.Context(), append([]string{"checkpoint", "reset"}, args...), &stdout, &stderr); code != exitOK ||
		written == "" || strings.Contains(written, "checkpoint.json") {
		t.Fatalf("reset: exit code %d, %s; written is %s", code, &stderr, written)
	}
	const wantReset = "checkpoint ConfigMap cdc/kubecdc-checkpoint: removed, with 1 scopes.\n" +
		"The next start takes a new snapshot of all that is captured.\nA running agent stops when it detects this.\n"
	if stdout.String() != wantReset {
		t.Errorf("reset: got %q", &stdout)
	}
}

// A scope that is given up ends on the bus first. Without a bus nothing changes, unless its end is
// not wanted.
func TestForgetEndsTheScope(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, config := filepath.Join(dir, "checkpoint.json"), filepath.Join(dir, "kubecdc.yaml")
	address := startJetStream(t, &server.Options{})
	yaml := "apiVersion: kubecdc.dev/v1\ncluster: prod\nbus: {nats: {url: \"nats://" + address +
		"\"}}\ncheckpoint: {file: {path: \"" + file + "\"}}\n"
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	last := time.Now().Add(-time.Minute).UTC()
	retiring := func() {
		write(t, file, &checkpoint.Document{
			Identity: checkpoint.Identity{ClusterUID: uidA, Cluster: "prod", Epoch: 3}, Saved: last, Time: last,
			Scopes: map[string]checkpoint.Scope{
				"deployments.apps": {
					Group:           "apps",
					Version:         "v1",
					Resource:        "deployments",
					Kind:            "Deployment",
					Namespaced:      true,
					ResourceVersion: 7,
					History:         1,
					Retiring:        &checkpoint.Retiring{Since: last},
				},
				"pods": {Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true, ResourceVersion: 9},
			},
		})
	}
	forget := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, said bytes.Buffer
		args = append([]string{"checkpoint", "forget", "deployments.apps"}, args...)
		if got := run(t.Context(), args, &out, &said); got != code {
			t.Fatalf("%q: exit code %d, want %d: %s%s", args, got, code, &out, &said)
		}
		return out.String(), said.String()
	}
	scopes := func() int {
		t.Helper()
		d, err := checkpoint.Read(t.Context(), checkpoint.OpenFile(file))
		if err != nil {
			t.Fatal(err)
		}
		return len(d.Scopes)
	}

	retiring()
	before := time.Now()
	out, _ := forget(exitOK, "--config", config)
	if !strings.HasPrefix(out, "The bus has the end of deployments.apps.\n") || scopes() != 1 {
		t.Errorf("the checkpoint has %d scopes: %s", scopes(), out)
	}
	source := &fromnats.JetStream{URL: "nats://" + address}
	reader, err := source.Read(t.Context(), consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	e, err := reader.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := fmt.Sprintf("3-%d", last.UnixMilli())
	if e.Type != consume.TypeScopeEnded || e.Scope != "deployments.apps" || e.Stream.End != consume.EndForgotten ||
		e.Stream.ResourceVersion != "7" ||
		e.History() != 1 || e.Stream.Run != run || e.Epoch == "" || e.ClusterUID != uidA || e.Cluster != "prod" ||
		e.Time.Before(before) {
		t.Errorf("the record has %+v, %+v; want the end of the scope by run %s", e, e.Stream, run)
	}
	if _, err := reader.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("the record has more than the end: %v", err)
	}

	retiring()
	_, said := forget(exitFailed, "--config", config, "--bus", "nats://127.0.0.1:1")
	for _, want := range []string{
		"the end of deployments.apps is not on the bus, nothing was changed", "did not accept it within",
		"connection refused", "--no-end",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in: %s", want, said)
		}
	}
	if scopes() != 2 {
		t.Errorf("the checkpoint has %d scopes, want 2", scopes())
	}
	if out, _ := forget(exitOK, "--config", config, "--bus", "nats://127.0.0.1:1", "--no-end"); strings.Contains(out,
		"The bus has") || scopes() != 1 {
		t.Errorf("the checkpoint has %d scopes: %s", scopes(), out)
	}
}

// The embedded JetStream runs only as long as the agent does: the command starts it.
func TestForgetStartsTheEmbeddedJetStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "checkpoint.json")
	write(t, file, &checkpoint.Document{
		Identity: checkpoint.Identity{ClusterUID: uidA, Cluster: uidA, Bus: "the embedded JetStream"},
		Saved:    time.Now(),
		Scopes: map[string]checkpoint.Scope{"pods": {
			Version:         "v1",
			Resource:        "pods",
			Kind:            "Pod",
			ResourceVersion: 9,
			Retiring:        &checkpoint.Retiring{Since: time.Now()},
		}},
	})
	var out, stderr bytes.Buffer
	code := run(t.Context(), []string{"checkpoint", "forget", "pods", "--data-dir", dir}, &out, &stderr)
	if code != exitOK || !strings.HasPrefix(out.String(), "The bus has the end of pods.\n") {
		t.Errorf("exit code %d: %s%s", code, &out, &stderr)
	}
}
