package agent

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/config"
)

// Two agents have one name only if they keep their positions in one place, on one node.
func TestWriterOf(t *testing.T) {
	configMap := &checkpointLocation{ConfigMap: &config.CheckpointConfigMap{Namespace: "a", Name: "b"}}
	names := map[string]string{
		"ConfigMap": writerOf("uid", keptIn(configMap, "host"), ""),
		"ConfigMap of another name": writerOf("uid", keptIn(&checkpointLocation{ConfigMap: &config.CheckpointConfigMap{
			Namespace: "a/b",
			Name:      "",
		}}, "host"), ""),
		"another cluster":         writerOf("uid-2", keptIn(configMap, "host"), ""),
		"node":                    writerOf("uid", keptIn(configMap, "host"), "node-1"),
		"file":                    writerOf("uid", keptIn(&checkpointLocation{File: "/a/b"}, "host"), ""),
		"file of another machine": writerOf("uid", keptIn(&checkpointLocation{File: "/a/b"}, "host-2"), ""),
		"no checkpoint":           writerOf("uid", keptIn(&checkpointLocation{}, "host"), ""),
	}
	seen := map[string]string{}
	for what, name := range names {
		if len(name) != 16 {
			t.Errorf("%s: the name is %q, want 16 digits", what, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s have one name: %s", what, other, name)
		}
		seen[name] = what
	}
	if again := writerOf("uid", keptIn(configMap, "host-2"), ""); again != names["ConfigMap"] {
		t.Errorf("with a ConfigMap the name depends on the machine: %s, then %s", names["ConfigMap"], again)
	}
}

func TestRunOf(t *testing.T) {
	if got := runOf(3, time.UnixMilli(1795186799000)); got != "3-1795186799000" {
		t.Errorf("the run is %s", got)
	}
}
