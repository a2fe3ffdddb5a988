package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/nats"
	publishstdout "github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/config"
)

const uidA = "11e0c5a4-0000-4000-8000-00000000000a"

func TestWhereACheckpointIs(t *testing.T) {
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	root := filepath.Join(data, "kubecdc")
	stdout := config.Bus{"stdout": &publishstdout.Config{}}
	named := &config.CheckpointConfigMap{Namespace: "cdc", Name: "mine"}
	for name, c := range map[string]struct {
		flags  Options
		change func(*config.Config)
		pod    string // its namespace
		want   checkpointLocation
		anyOf  string // a pattern instead, of the file
	}{
		"embedded": {want: checkpointLocation{File: filepath.Join(root, uidA, "checkpoint.json")}},
		"embedded, elsewhere": {flags: Options{DataDir: data}, want: checkpointLocation{
			File: filepath.Join(data, "checkpoint.json"),
		}},
		"embedded, in a pod": {pod: "cdc", want: checkpointLocation{
			File: filepath.Join(root, uidA, "checkpoint.json"),
		}},
		"a bus": {flags: Options{
			Bus: "nats://a:4222",
		}, anyOf: `/checkpoints/` + uidA + `-[0-9a-f]{12}\.json$`},
		"a bus, in a pod": {flags: Options{Bus: "nats://a:4222"}, pod: "cdc", want: checkpointLocation{
			ConfigMap: &config.CheckpointConfigMap{Namespace: "cdc", Name: "kubecdc-checkpoint"},
		}},
		"stdout": {flags: Options{Bus: "stdout"}, change: func(c *config.Config) { c.Bus = stdout }},
		"stdout, in a pod": {flags: Options{Bus: "stdout"}, change: func(c *config.Config) {
			c.Bus = stdout
		}, pod: "cdc"},
		"a file": {flags: Options{Config: "f"}, change: func(c *config.Config) {
			c.Checkpoint.File = &config.CheckpointFile{Path: "/p"}
		}, pod: "cdc", want: checkpointLocation{File: "/p"}},
		"a file, for stdout": {flags: Options{Config: "f"}, change: func(c *config.Config) {
			c.Bus = stdout
			c.Checkpoint.File = &config.CheckpointFile{Path: "/p"}
		}, want: checkpointLocation{File: "/p"}},
		"a ConfigMap": {flags: Options{Config: "f"}, change: func(c *config.Config) {
			c.Checkpoint.ConfigMap = named
		}, want: checkpointLocation{ConfigMap: named}},
		"a ConfigMap, in a pod": {flags: Options{Config: "f"}, change: func(c *config.Config) {
			c.Checkpoint.ConfigMap = named
		}, pod: "kubecdc", want: checkpointLocation{ConfigMap: named}},
	} {
		cfg := config.Default()
		if c.change != nil {
			c.change(cfg)
		}
		here := &Cluster{namespace: c.pod}
		got, err := locateCheckpoint(&c.flags, cfg, func() (*Cluster, error) { return here, nil },
			func() (string, error) { return uidA, nil })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same := got.File == c.want.File && fmt.Sprint(got.ConfigMap) == fmt.Sprint(c.want.ConfigMap)
		if c.anyOf != "" {
			same = regexp.MustCompile(c.anyOf).MatchString(got.File)
		}
		if !same {
			t.Errorf("%s: got %s %v", name, got.File, got.ConfigMap)
		}
		// The agent never captures its own checkpoint.
		if names := ignored(&c.flags, cfg, here); (got.ConfigMap != nil) != (len(names) == 1) ||
			len(names) == 1 && (names[0].Namespace != got.ConfigMap.Namespace || names[0].Name != got.ConfigMap.Name) {
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
		p, err := locateCheckpoint(&Options{Bus: url}, cfg, func() (*Cluster, error) { return &Cluster{}, nil },
			func() (string, error) { return uidA, nil })
		if err != nil {
			t.Fatal(err)
		}
		return p.File
	}
	as := func(*config.Config) {}
	first := of("nats://a:4222,nats://b:4222", as)
	if again := of("nats://b:4222/, nats://a:4222", as); again != first {
		t.Errorf("the same servers: %s and %s", first, again)
	}
	for name, other := range map[string]string{
		"servers": of("nats://c:4222", as),
		"stream": of("nats://a:4222,nats://b:4222", func(c *config.Config) {
			c.Bus["nats"].(*nats.Config).Stream.Name = "OTHER"
		}),
		"subject": of("nats://a:4222,nats://b:4222", func(c *config.Config) {
			c.Bus["nats"].(*nats.Config).Subject = "other.{cluster}"
		}),
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
		"Kafka":                "kafka://a:9092,b:9092/t",
		"Kafka, turned round":  "kafka://b:9092,a:9092/t",
		"Kafka, another topic": "kafka://a:9092,b:9092/u",
		"Kafka elsewhere":      "kafka://c:9092/t",
		"HTTP":                 "https://a/x?key=1",
		"HTTP, another key":    "https://a/x?key=2",
		"HTTP, another path":   "https://a/y",
		"NATS":                 "nats://a:4222",
	} {
		f := &Options{Bus: url}
		cfg, err := f.LoadConfig()
		if err != nil {
			t.Fatal(err)
		}
		p, err := locateCheckpoint(f, cfg, func() (*Cluster, error) { return &Cluster{}, nil },
			func() (string, error) { return uidA, nil })
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(name, ",")
		for other, file := range seen {
			same := strings.HasPrefix(name, "Kafka") && strings.HasPrefix(other, "Kafka") &&
				!strings.Contains(name+other, "topic") && !strings.Contains(name+other, "elsewhere") ||
				strings.HasPrefix(other, first) && first == "HTTP" && !strings.Contains(name+other, "path")
			if same != (file == p.File) {
				t.Errorf("%s: %s, %s: %s", name, p.File, other, file)
			}
		}
		seen[name] = p.File
	}
}

func TestNoPlaceForACheckpoint(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "")
	_, err := locateCheckpoint(&Options{Bus: "nats://a:4222"}, config.Default(),
		func() (*Cluster, error) { return &Cluster{}, nil }, func() (string, error) { return uidA, nil })
	if err == nil || !strings.Contains(err.Error(), "name one in the configuration (checkpoint)") {
		t.Errorf("got %v", err)
	}
}

// A checkpoint identifies its bus without the servers: another server does not make another stream.
func TestABusIsItsStream(t *testing.T) {
	cfg := config.Default()
	cfg.Bus["nats"].(*nats.Config).URL = "nats://a:4222, tls://b:4222/"
	got := busIdentity(&Options{Bus: cfg.Bus["nats"].(*nats.Config).URL}, cfg)
	if want := "NATS, stream KUBECDC, subjects " + cfg.Bus["nats"].(*nats.Config).Subject; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := busIdentity(&Options{}, cfg); got != "the embedded JetStream" {
		t.Errorf("embedded: got %q", got)
	}
	for url, want := range map[string]string{
		"kafka://a:9092,b:9092/kubecdc.{cluster}":      "Kafka, topic kubecdc.{cluster}",
		"https://events.example.com":                   "HTTP, https://events.example.com",
		"https://events.example.com/?key=hunter2":      "HTTP, https://events.example.com",
		"https://events.example.com/hunter2?k=hunter2": "HTTP, https://events.example.com/… (175e4ae0)",
		"stdout:": "stdout",
	} {
		f := &Options{Bus: url}
		cfg, err := f.LoadConfig()
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

// At a terminal, a command prints what it waits for. It waits for a limited time.
func TestACheckpointOfAClusterThatDoesNotAnswer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "dev", "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
		"contexts": [{"name": "dev", "context": {"cluster": "c"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	var stderr bytes.Buffer
	_, err := OpenCheckpoint(t.Context(), &Options{Kubeconfig: file}, 1500*time.Millisecond, &stderr)
	if err == nil || !strings.Contains(err.Error(), "did not identify: no answer within 1.5s; with --data-dir") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(stderr.String(), "cannot reach the API server, retrying") {
		t.Errorf("said is %q", &stderr)
	}
}
