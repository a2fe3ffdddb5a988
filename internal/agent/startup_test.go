package agent

import (
	"bytes"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/nats"
	publishstdout "github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

func TestItemsOfTheFirstSnapshot(t *testing.T) {
	got := items([]informer.Status{
		{Scope: "pods", Phase: informer.PhaseWaiting},
		{Scope: "secrets", Phase: informer.PhaseListing, Objects: 500, Expected: 1200},
		{Scope: "nodes", Phase: informer.PhaseLive, Synced: true, Objects: 10, Pending: 4},
		{Scope: "services", Phase: informer.PhaseLive, Synced: true, Captured: true, Objects: 3},
		{
			Scope:  "jobs.batch",
			Phase:  informer.PhaseWaiting,
			Health: informer.HealthForbidden,
			Reason: "forbidden",
			Error:  "jobs.batch is forbidden: …",
		},
		{Scope: "widgets.example.com", Phase: informer.PhaseWaiting, Health: informer.HealthNotServed},
		{Scope: "namespaces", Phase: informer.PhaseRetiring},
	})
	want := []terminal.Item{
		{Name: "pods", State: terminal.Waiting},
		{Name: "secrets", State: terminal.Reading, Objects: 500, Expected: 1200},
		{Name: "nodes", State: terminal.Sending, Objects: 10, Sent: 6},
		{Name: "services", State: terminal.Done, Objects: 3, Sent: 3},
		{Name: "jobs.batch", Problem: "forbidden"},
		{Name: "widgets.example.com", Problem: "not served"},
		{Name: "namespaces", Problem: "no longer selected"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

// The commands that the agent shows must work: their flags exist, and they name the bus where tail
// would not find it.
func TestHints(t *testing.T) {
	for name, test := range map[string]struct {
		bus   config.Bus
		flags Options
		want  string
	}{
		"another bus": {
			config.Bus{"nats": &nats.Config{URL: "nats://nats.example:4222"}},
			Options{Bus: "nats://nats.example:4222"},
			`
In another terminal:

  kubecdc tail --bus nats://nats.example:4222              each change as it happens
  kubecdc tail --bus nats://nats.example:4222 --diff       what changed, and who changed it
  kubecdc tail --bus nats://nats.example:4222 --since 1h   the last hour

`,
		},
		"a bus that asks who one is": {
			config.Bus{"nats": &nats.Config{URL: "tls://nats.example:4222", TLS: &publish.TLS{}}},
			Options{Config: "kubecdc.yaml"},
			`
In another terminal:

  kubecdc tail --config kubecdc.yaml              each change as it happens
  kubecdc tail --config kubecdc.yaml --diff       what changed, and who changed it
  kubecdc tail --config kubecdc.yaml --since 1h   the last hour

`,
		},
		"Kafka": {
			config.Bus{"kafka": &kafka.Config{Brokers: []string{"a:9092", "b:9092"}, Topic: "kubecdc.{cluster}"}},
			Options{},
			`
In another terminal:

  kcat -b a:9092,b:9092 -C -o end -t kubecdc.prod   each change as it happens
  kcat -b a:9092,b:9092 -C -e -t kubecdc.prod       all records of the topic

`,
		},
		"Kafka with a topic for each resource": {
			config.Bus{"kafka": &kafka.Config{Brokers: []string{"a:9092"}, Topic: "{cluster}.{resource}"}},
			Options{},
			`
In another terminal:

  kcat -b a:9092 -L   the topics

`,
		},
		"Kafka that asks who one is": {config.Bus{"kafka": &kafka.Config{Brokers: []string{
			"a:9092",
		}, TLS: &publish.TLS{}}}, Options{}, ""},
		"HTTP": {config.Bus{"http": &publishhttp.Config{
			URL: "https://events.example.com/",
		}}, Options{}, ""},
		"stdout": {config.Bus{"stdout": &publishstdout.Config{}}, Options{Bus: "stdout:"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			showHints(&terminal.Output{Writer: &b}, hintsFor(&config.Config{Bus: test.bus}, "prod", nil, &test.flags))
			if diff := cmp.Diff(test.want, b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	var narrow bytes.Buffer
	showHints(&terminal.Output{Writer: &narrow, Width: 30}, []driver.Hint{{
		Command: "kubecdc tail",
		Purpose: "each change as it happens",
	}})
	if diff := cmp.Diff("\nIn another terminal:\n\n  # each change as it happens\n  kubecdc tail\n\n",
		narrow.String()); diff != "" {
		t.Errorf("narrow (-want +got):\n%s", diff)
	}
}

func TestHintsForAnEmbeddedJetStream(t *testing.T) {
	dir := t.TempDir()
	for _, dataDir := range []string{"", dir} {
		t.Setenv("XDG_DATA_HOME", t.TempDir())
		apiServer := &url.URL{Scheme: "https", Host: "127.0.0.1:6443"}
		local, err := startLocalBus(t.Context(), dataDir, uidA, "http://127.0.0.1:8080", apiServer,
			slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		cfg := config.Default()
		cfg.Bus["nats"].(*nats.Config).URL = local.URL()
		got := hintsFor(cfg, "prod", local, &Options{DataDir: dataDir})
		if err := local.Close(); err != nil {
			t.Fatal(err)
		}
		// tail finds what is in the default place, and only that.
		want := "kubecdc tail"
		if dataDir != "" {
			want += " --data-dir " + dataDir
		}
		if last := got[len(got)-1].Command; got[0].Command != want ||
			last != "nats sub --context "+filepath.Join(local.Dir(), "bus.json")+" 'kubecdc.>'" {
			t.Errorf("data directory %q: %+v", dataDir, got)
		}
	}
}

func TestLogOfMachines(t *testing.T) {
	for format, want := range map[config.LogFormat]string{
		config.LogAuto: `"msg":"ending","grace":"20s"`, // a buffer is no terminal
		config.LogJSON: `"msg":"ending","grace":"20s"`,
		config.LogText: `msg=ending grace=20s`,
	} {
		var b bytes.Buffer
		log, people := NewLogger(config.Log{Level: config.LogInfo, Format: format}, slog.LevelInfo, &terminal.Output{
			Writer: &b,
		})
		log.Info("ending", "grace", 20*time.Second)
		if got := b.String(); people || !strings.Contains(got, want) {
			t.Errorf("%s: people %v, %s lacks %s", format, people, got, want)
		}
	}
}
