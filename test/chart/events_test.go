package chart_test

import (
	"os"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The example that captures Events has the common resources of the chart, and Events.
func TestEventsExample(t *testing.T) {
	type rules []struct{ Resources []string }
	var common rules
	var example struct{ Config struct{ Watch rules } }
	for file, into := range map[string]any{
		"../../charts/kubecdc/files/watch.yaml": &common,
		"../../examples/values/events.yaml":     &example,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	if len(common) != 1 || len(example.Config.Watch) != 1 {
		t.Fatalf("%d and %d rules", len(common), len(example.Config.Watch))
	}
	want, got := append(common[0].Resources, "events"), example.Config.Watch[0].Resources
	slices.Sort(want)
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-chart and Events +example\n%s", diff)
	}
}
