package chart_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/chart"
	"github.com/kubecdc/kubecdc/test/prometheus"
)

// The alerts in the release are those of the chart, including their own braces, and select the
// release's own targets. The alert of the election is there only with an election.
func TestRulesOfRelease(t *testing.T) {
	h := newHelm(t)
	for _, c := range []struct {
		args     []string
		own      string
		election bool
	}{
		{nil, `namespace="kubecdc", job=~".*kubecdc.*"`, true},
		{[]string{"--set", "fullnameOverride=changes"}, `namespace="kubecdc", job=~".*changes.*"`, true},
		{[]string{"--set", "mode=node"}, `namespace="kubecdc", job=~".*kubecdc.*"`, true},
		{[]string{
			"--set", "replicas=1,config.leaderElection.enabled=false",
		}, `namespace="kubecdc", job=~".*kubecdc.*"`, false},
		// No pods, no central agent.
		{[]string{
			"--set", "mode=node,config.watch[0].resources={nodes}",
		}, `namespace="kubecdc", job=~".*kubecdc.*"`, false},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			files := []string{"rules.yaml"}
			if c.election {
				files = append(files, "rules-election.yaml")
			}
			var want []any
			for _, file := range files {
				want = append(want, chartRules(t, file, c.own)...)
			}
			got := items(
				ofKind(h.objects(t, release, append([]string{"--values", values("monitors")}, c.args...)...),
					"PrometheusRule")[0], "spec", "groups")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rules (-chart +release):\n%s", diff)
			}
		})
	}
}

// chartRules returns the groups of a file of the chart, with own in place of the chart's target
// selector.
func chartRules(t *testing.T, file, own string) []any {
	t.Helper()
	dir, err := chart.Dir()
	if err != nil {
		t.Fatal(err)
	}
	var rules object
	readYAML(t, filepath.Join(dir, "monitoring", file), &rules)
	text := string(indented(t, rules["groups"]))
	quoted := func(s string) string { return strings.ReplaceAll(s, `"`, `\"`) } // as it is in JSON
	if !strings.Contains(text, quoted(`job=~".*kubecdc.*"`)) {
		t.Fatalf("%s asks for no job", file)
	}
	var groups []any
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, quoted(`job=~".*kubecdc.*"`), quoted(own))),
		&groups); err != nil {
		t.Fatal(err)
	}
	return groups
}

// In mode both, an alert fires if the central agent or the whole release is gone, although an agent
// on a node or another release answers.
func TestRulesTellWhoIsGone(t *testing.T) {
	tools := prometheus.Require(t)
	rule := ofKind(newHelm(t).objects(t, release, "--values", values("monitors"), "--set", "mode=both"),
		"PrometheusRule")[0]
	const (
		central = `{namespace="kubecdc", job="kubecdc", pod="kubecdc-a"}`
		onNode  = `{namespace="kubecdc", job="kubecdc", pod="kubecdc-node-a"}`
		other   = `{namespace="other", job="kubecdc", pod="kubecdc-a"}`
	)
	type series struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	alert := func(name string, labels object) object {
		return object{"eval_time": "20m", "alertname": name, "exp_alerts": []object{{"exp_labels": labels}}}
	}
	silent := func(name string) object { return object{"eval_time": "20m", "alertname": name} }
	gone := object{"namespace": "kubecdc", "severity": "critical"}
	elsewhere := []series{{"up" + other, "1x60"}, {"kubecdc_leader" + other, "1x60"}}
	file := filepath.Join(t.TempDir(), "tests.json")
	for path, content := range map[string]any{
		file: object{
			"rule_files": []string{"rules.json"}, "evaluation_interval": "30s",
			"tests": []object{
				{
					"name": "the Deployment is gone", "interval": "30s",
					"input_series": append([]series{
						{"up" + central, "1x4 stale"}, {"kubecdc_leader" + central, "1x4 stale"}, {
							"up" + onNode, "1x60",
						},
					}, elsewhere...),
					"alert_rule_test": []object{alert("KubecdcLeaderAbsent", gone), silent("KubecdcAbsent")},
				},
				{
					"name": "all are gone", "interval": "30s",
					"input_series": append([]series{
						{"up" + central, "1x4 stale"}, {"kubecdc_leader" + central, "1x4 stale"}, {
							"up" + onNode, "1x4 0x60",
						},
					}, elsewhere...),
					"alert_rule_test": []object{alert("KubecdcLeaderAbsent", gone), alert("KubecdcAbsent", object{
						"severity": "critical",
					})},
				},
				{
					"name": "all are there", "interval": "30s",
					"input_series": []series{
						{"up" + central, "1x60"}, {"kubecdc_leader" + central, "1x60"}, {"up" + onNode, "1x60"}, {
							"up" + other, "1x4 0x60",
						},
					},
					"alert_rule_test": []object{
						silent("KubecdcLeaderAbsent"), silent("KubecdcAbsent"), silent("KubecdcDown"),
					},
				},
			},
		},
		filepath.Join(filepath.Dir(file), "rules.json"): object{
			"groups": withoutAnnotations(items(rule, "spec", "groups")),
		},
	} {
		if err := os.WriteFile(path, indented(t, content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), tools.Promtool, "test", "rules",
		file).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

// withoutAnnotations removes the annotations, which a unit test would have to repeat.
func withoutAnnotations(groups []any) []any {
	for _, g := range groups {
		for _, r := range items(g, "rules") {
			delete(r.(object), "annotations")
		}
	}
	return groups
}
