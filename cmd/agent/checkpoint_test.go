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

	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish/nats"
	publishstdout "github.com/kubecdc/kubecdc/internal/publish/stdout"
)

func TestWhereACheckpointIs(t *testing.T) {
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	root := filepath.Join(data, "kubecdc")
	stdout := config.Bus{"stdout": &publishstdout.Config{}}
	named := &config.CheckpointConfigMap{Namespace: "cdc", Name: "mine"}
	for name, c := range map[string]struct {
		flags  runFlags
		change func(*config.Config)
		pod    string // its namespace
		want   place
		anyOf  string // a pattern instead, of the file
	}{
		"embedded":              {want: place{file: filepath.Join(root, uidA, "checkpoint.json")}},
		"embedded, elsewhere":   {flags: runFlags{dataDir: data}, want: place{file: filepath.Join(data, "checkpoint.json")}},
		"embedded, in a pod":    {pod: "cdc", want: place{file: filepath.Join(root, uidA, "checkpoint.json")}},
		"a bus":                 {flags: runFlags{bus: "nats://a:4222"}, anyOf: `/checkpoints/` + uidA + `-[0-9a-f]{12}\.json$`},
		"a bus, in a pod":       {flags: runFlags{bus: "nats://a:4222"}, pod: "cdc", want: place{configMap: &config.CheckpointConfigMap{Namespace: "cdc", Name: "kubecdc-checkpoint"}}},
		"stdout":                {flags: runFlags{bus: "stdout"}, change: func(c *config.Config) { c.Bus = stdout }},
		"stdout, in a pod":      {flags: runFlags{bus: "stdout"}, change: func(c *config.Config) { c.Bus = stdout }, pod: "cdc"},
		"a file":                {flags: runFlags{config: "f"}, change: func(c *config.Config) { c.Checkpoint.File = &config.CheckpointFile{Path: "/p"} }, pod: "cdc", want: place{file: "/p"}},
		"a file, for stdout":    {flags: runFlags{config: "f"}, change: func(c *config.Config) { c.Bus, c.Checkpoint.File = stdout, &config.CheckpointFile{Path: "/p"} }, want: place{file: "/p"}},
		"a ConfigMap":           {flags: runFlags{config: "f"}, change: func(c *config.Config) { c.Checkpoint.ConfigMap = named }, want: place{configMap: named}},
		"a ConfigMap, in a pod": {flags: runFlags{config: "f"}, change: func(c *config.Config) { c.Checkpoint.ConfigMap = named }, pod: "kubecdc", want: place{configMap: named}},
	} {
		cfg := config.Default()
		if c.change != nil {
			c.change(cfg)
		}
		here := &cluster{namespace: c.pod}
		got, err := placeOf(&c.flags, cfg, func() (*cluster, error) { return here, nil }, func() (string, error) { return uidA, nil })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same := got.file == c.want.file && fmt.Sprint(got.configMap) == fmt.Sprint(c.want.configMap)
		if c.anyOf != "" {
			same = regexp.MustCompile(c.anyOf).MatchString(got.file)
		}
		if !same {
			t.Errorf("%s: got %s %v", name, got.file, got.configMap)
		}
		// What is saved is never captured.
		if names := ignored(&c.flags, cfg, here); (got.configMap != nil) != (len(names) == 1) ||
			len(names) == 1 && (names[0].Namespace != got.configMap.Namespace || names[0].Name != got.configMap.Name) {
			t.Errorf("%s: left out are %v", name, names)
		}
	}
}

// Each bus has a checkpoint of its own, whichever of its servers is named first.
func TestEachBusHasACheckpoint(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	of := func(url string, change func(*config.Config)) string {
		cfg := config.Default()
		cfg.Bus["nats"].(*nats.Config).URL = url
		change(cfg)
		p, err := placeOf(&runFlags{bus: url}, cfg, func() (*cluster, error) { return &cluster{}, nil }, func() (string, error) { return uidA, nil })
		if err != nil {
			t.Fatal(err)
		}
		return p.file
	}
	as := func(*config.Config) {}
	first := of("nats://a:4222,nats://b:4222", as)
	if again := of("nats://b:4222/, nats://a:4222", as); again != first {
		t.Errorf("the same servers: %s and %s", first, again)
	}
	for name, other := range map[string]string{
		"servers": of("nats://c:4222", as),
		"stream":  of("nats://a:4222,nats://b:4222", func(c *config.Config) { c.Bus["nats"].(*nats.Config).Stream.Name = "OTHER" }),
		"subject": of("nats://a:4222,nats://b:4222", func(c *config.Config) { c.Bus["nats"].(*nats.Config).Subject = "other.{cluster}" }),
		"cluster": of("nats://a:4222,nats://b:4222", func(c *config.Config) { c.Cluster = "other" }),
	} {
		if other == first {
			t.Errorf("another %s: the same checkpoint %s", name, first)
		}
	}
}

// As of buses other than NATS.
func TestEachBusOfItsKindHasACheckpoint(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	seen := map[string]string{}
	for name, url := range map[string]string{
		"Kafka": "kafka://a:9092,b:9092/t", "Kafka, turned round": "kafka://b:9092,a:9092/t", "Kafka, another topic": "kafka://a:9092,b:9092/u",
		"Kafka elsewhere": "kafka://c:9092/t", "HTTP": "https://a/x?key=1", "HTTP, another key": "https://a/x?key=2", "HTTP, another path": "https://a/y",
		"NATS": "nats://a:4222",
	} {
		f := &runFlags{bus: url}
		cfg, err := loadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		p, err := placeOf(f, cfg, func() (*cluster, error) { return &cluster{}, nil }, func() (string, error) { return uidA, nil })
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(name, ",")
		for other, file := range seen {
			same := strings.HasPrefix(name, "Kafka") && strings.HasPrefix(other, "Kafka") && !strings.Contains(name+other, "topic") && !strings.Contains(name+other, "elsewhere") ||
				strings.HasPrefix(other, first) && first == "HTTP" && !strings.Contains(name+other, "path")
			if same != (file == p.file) {
				t.Errorf("%s: %s, %s: %s", name, p.file, other, file)
			}
		}
		seen[name] = p.file
	}
}

func TestNoPlaceForACheckpoint(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "")
	_, err := placeOf(&runFlags{bus: "nats://a:4222"}, config.Default(), func() (*cluster, error) { return &cluster{}, nil }, func() (string, error) { return uidA, nil })
	if err == nil || !strings.Contains(err.Error(), "name one in the configuration (checkpoint)") {
		t.Errorf("got %v", err)
	}
}

// The bus of a checkpoint is told without its servers: one more of them makes no other stream.
func TestABusIsItsStream(t *testing.T) {
	cfg := config.Default()
	cfg.Bus["nats"].(*nats.Config).URL = "nats://a:4222, tls://b:4222/"
	got := busIdentity(&runFlags{bus: cfg.Bus["nats"].(*nats.Config).URL}, cfg)
	if want := "NATS, stream KUBECDC, subjects " + cfg.Bus["nats"].(*nats.Config).Subject; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := busIdentity(&runFlags{}, cfg); got != "the embedded JetStream" {
		t.Errorf("embedded: got %q", got)
	}
	for url, want := range map[string]string{
		"kafka://a:9092,b:9092/kubecdc.{cluster}":      "Kafka, topic kubecdc.{cluster}",
		"https://events.example.com":                   "HTTP, https://events.example.com",
		"https://events.example.com/?key=hunter2":      "HTTP, https://events.example.com",
		"https://events.example.com/hunter2?k=hunter2": "HTTP, https://events.example.com/… (175e4ae0)",
		"stdout:": "stdout",
	} {
		f := &runFlags{bus: url}
		cfg, err := loadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := busIdentity(f, cfg); got != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
		if name := busName(f, cfg.Bus); strings.Contains(name, "hunter2") {
			t.Errorf("%s: for the log it is %q", url, name)
		}
	}
}

// A run leaves a checkpoint beside its records, the next one goes on from there, and meanwhile nobody resets it.
func TestARunGoesOnFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "checkpoint.json")
	config := kubeconfig(t, fakeAPI(t, uidA, nil).URL)
	place := regexp.QuoteMeta(`"kept_in":"checkpoint file ` + file + `"`)
	first := launch(t, "run", "--kubeconfig", config, "--data-dir", dir)
	first.says(t, `"msg":"no checkpoint yet, beginning anew",`+place)
	first.says(t, "connected to bus")

	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"checkpoint", "reset", "--data-dir", dir}, io.Discard, &stderr); code != exitFailed ||
		!regexp.MustCompile(`checkpoint\.json: in use by another kubecdc \(pid \d+\): end that one`).MatchString(stderr.String()) {
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

	// One of another cluster is no place to go on from.
	write(t, file, &checkpoint.Document{Identity: checkpoint.Identity{ClusterUID: uidB, Cluster: uidB}})
	third := launch(t, "run", "--kubeconfig", config, "--data-dir", dir)
	if code := third.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	third.says(t, `kubecdc: checkpoint file .*checkpoint\.json: it is of .*cluster .*`+uidB+`.*'kubecdc checkpoint reset'`)
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

// A checkpoint in a ConfigMap is shown and reset by asking the API server; an agent that runs cannot be told from here.
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
	if want := "checkpoint ConfigMap cdc/kubecdc-checkpoint: removed; forgotten are 1 scopes.\n" +
		"The next start takes a new snapshot of all that is captured.\nAn agent that runs now ends when it notices.\n"; stdout.String() != want {
		t.Errorf("reset: got %q", &stdout)
	}
}

// A person is told what a command waits for, and it does not wait for ever.
func TestACheckpointOfAClusterThatDoesNotAnswer(t *testing.T) {
	var stderr bytes.Buffer
	config := kubeconfig(t, "http://127.0.0.1:1")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	_, err := openCheckpointWithin(t.Context(), 1500*time.Millisecond, &runFlags{kubeconfig: config}, &stderr)
	if err == nil || !strings.Contains(err.Error(), "has not told which it is: no answer within 1.5s; with --data-dir") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(stderr.String(), "cannot reach the API server, retrying") {
		t.Errorf("said is %q", &stderr)
	}
}

func TestAPodIsFound(t *testing.T) {
	if _, err := rest.InClusterConfig(); !errors.Is(err, rest.ErrNotInCluster) {
		t.Skip("this is a pod")
	}
	c, err := findCluster(&runFlags{kubeconfig: kubeconfig(t, "http://127.0.0.1:1")})
	if err != nil || c.namespace != "" {
		t.Errorf("%v: outside of a pod its namespace is %q", err, c.namespace)
	}
}
