package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
)

// The NATS server of a first try accepts its configuration, and the agents connect to it.
func TestTrialNATS(t *testing.T) {
	h := newHelm(t)
	for name, want := range map[string]int64{"nats-trial": 2 << 30, "nats-trial-kept": 10 << 30} {
		for _, release := range []string{release, "1.try"} {
			t.Run(name+" "+release, func(t *testing.T) {
				all := h.objects(t, release, "--values", values(name))
				set := ofKind(all, "StatefulSet")[0]
				service := text(set, "spec", "serviceName")
				if url, want := at(configOf(t, all), "bus", "nats", "url"),
					"nats://"+service+"."+namespace+":4222"; url != want {
					t.Errorf("agents look for it at %v, and it is at %s", url, want)
				}
				selector := at(named(all, "Service", service), "spec", "selector")
				if diff := cmp.Diff(selector, at(set, "spec", "template", "metadata", "labels")); diff != "" {
					t.Errorf("the Service selects others (-selector +labels):\n%s", diff)
				}
				if diff := cmp.Diff(selector,
					at(ofKind(all, "Deployment")[0], "spec", "selector", "matchLabels")); diff == "" {
					t.Error("the Service selects the agents")
				}

				file := filepath.Join(t.TempDir(), "nats.conf")
				conf := text(named(all, "ConfigMap", service), "data", "nats.conf")
				if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
					t.Fatal(err)
				}
				o, err := server.ProcessConfigFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if o.Port != 4222 || o.HTTPPort != 8222 || !o.JetStream || o.StoreDir != "/data" ||
					o.JetStreamMaxStore != want {
					t.Errorf("it listens on %d and %d, JetStream %v in %s, at most %d bytes, want %d", o.Port,
						o.HTTPPort, o.JetStream, o.StoreDir,
						o.JetStreamMaxStore, want)
				}
				pod := at(set, "spec", "template")
				var mounts []string
				for _, m := range items(items(pod, "spec", "containers")[0], "volumeMounts") {
					mounts = append(mounts, text(m, "mountPath"))
				}
				if got := strings.Join(mounts, " "); got != "/etc/nats-config /data" {
					t.Errorf("mounted are %s", got)
				}
			})
		}
	}
}
