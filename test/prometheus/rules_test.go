package prometheus_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/test/prometheus"
)

// rulesFiles are the rules of the chart: for all agents, and for agents that elect a leader.
var rulesFiles = []string{
	"../../charts/kubecdc/monitoring/rules.yaml", "../../charts/kubecdc/monitoring/rules-election.yaml",
}

// rule is one of the rules, as Prometheus reads it.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

// readRules returns the rules of the chart. A key that rule does not have is an error.
func readRules(t *testing.T) []group {
	t.Helper()
	var groups []group
	for _, name := range rulesFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Groups []group `json:"groups"`
		}
		if err := yaml.UnmarshalStrict(text, &file); err != nil {
			t.Fatal(err)
		}
		groups = append(groups, file.Groups...)
	}
	return groups
}

// allRules returns the rules by the name of their alert.
func allRules(t *testing.T) map[string]rule {
	t.Helper()
	all := map[string]rule{}
	for _, g := range readRules(t) {
		for _, r := range g.Rules {
			if _, twice := all[r.Alert]; twice || r.Alert == "" {
				t.Errorf("group %s: alert %q is there twice, or has no name", g.Name, r.Alert)
			}
			all[r.Alert] = r
		}
	}
	return all
}

// ruleTest is one of promtool's rule unit tests.
type ruleTest struct {
	Name   string          `json:"name"`
	Every  string          `json:"interval"`
	Series json.RawMessage `json:"input_series"`
	Checks []struct {
		Time   string `json:"eval_time"`
		Alert  string `json:"alertname"`
		Alerts []struct {
			Labels map[string]string `json:"exp_labels"`
		} `json:"exp_alerts,omitempty"`
	} `json:"alert_rule_test"`
}

type ruleTests struct {
	Files []string   `json:"rule_files"`
	Every string     `json:"evaluation_interval"`
	Tests []ruleTest `json:"tests"`
}

func readRuleTests(t *testing.T) ruleTests {
	t.Helper()
	text, err := os.ReadFile("testdata/rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tests ruleTests
	if err := yaml.UnmarshalStrict(text, &tests); err != nil {
		t.Fatal(err)
	}
	return tests
}

func TestRulesAreValid(t *testing.T) {
	t.Parallel()
	tools := prometheus.Require(t)
	out, err := exec.CommandContext(t.Context(), tools.Promtool,
		append([]string{"check", "rules"}, rulesFiles...)...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}

// TestRulesTellWhatToDo checks the information that an alert has for the person on call.
func TestRulesTellWhatToDo(t *testing.T) {
	for name, r := range allRules(t) {
		want := rule{
			Alert: name, Expr: r.Expr, For: r.For, Labels: map[string]string{"severity": r.Labels["severity"]},
			Annotations: map[string]string{
				"summary": r.Annotations["summary"], "description": r.Annotations["description"],
				"runbook_url": "https://github.com/kubecdc/kubecdc/blob/main/docs/runbook/" + name + ".md",
			},
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q is neither critical nor warning", name, r.Labels["severity"])
		}
		if s := r.Annotations["summary"]; s == "" || len(s) > 80 || strings.Contains(s, "{{") {
			t.Errorf("%s: summary %q is to be a short sentence, the same for all", name, s)
		}
		if !strings.Contains(r.Annotations["description"], ". ") {
			t.Errorf("%s: its description says what is the case, and no second sentence what to do", name)
		}
	}
}

// TestRunbookHasEveryAlert checks the page of an alert's runbook_url, and its row in the index.
func TestRunbookHasEveryAlert(t *testing.T) {
	pages, err := filepath.Glob("../../docs/runbook/Kubecdc*.md")
	if err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile("../../docs/runbook/README.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := allRules(t)
	var got []string
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		got = append(got, name)
		row := fmt.Sprintf("| [%[1]s](%[1]s.md) | %s |", name, rules[name].Labels["severity"])
		text, err := os.ReadFile(page)
		if err != nil || !strings.HasPrefix(string(text), "# "+name+"\n\n*"+rules[name].Labels["severity"]+".*") {
			t.Errorf("%s does not begin with the alert's name and severity (%v)", page, err)
		}
		if !strings.Contains(string(index), row) {
			t.Errorf("docs/runbook/README.md has no row %s", row)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(rules)), got); diff != "" {
		t.Errorf("pages of docs/runbook (-alerts +pages):\n%s", diff)
	}
}

// TestRulesAreTested checks that each alert has a test in which it fires and one in which it does
// not, although its metrics are there. Its annotations may show only labels that the alert has.
func TestRulesAreTested(t *testing.T) {
	rules := allRules(t)
	fires, silent := map[string]bool{}, map[string]bool{}
	shown := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, test := range readRuleTests(t).Tests {
		for _, c := range test.Checks {
			if _, ok := rules[c.Alert]; !ok {
				t.Errorf("%s: there is no alert %q", test.Name, c.Alert)
			}
			if !strings.HasPrefix(test.Name, c.Alert+": ") {
				t.Errorf("%s: tests %s", test.Name, c.Alert)
			}
			if len(c.Alerts) == 0 {
				silent[c.Alert] = true
			}
			for _, a := range c.Alerts {
				fires[c.Alert] = true
				for _, m := range shown.FindAllStringSubmatch(rules[c.Alert].Annotations["description"], -1) {
					if a.Labels[m[1]] == "" {
						t.Errorf("%s: its description shows label %s, which the alert does not have", test.Name, m[1])
					}
				}
			}
		}
	}
	for name := range rules {
		if !fires[name] || !silent[name] {
			t.Errorf("%s: tested that it fires: %t, and that it does not: %t", name, fires[name], silent[name])
		}
	}
}

// TestRulesFire runs the rule unit tests.
func TestRulesFire(t *testing.T) {
	t.Parallel()
	out, err := runRuleTests(t, func(*rule) {})
	if err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

// TestRuleTestsFail runs the unit tests against wrong rules: for each alert, at least one must
// fail.
func TestRuleTestsFail(t *testing.T) {
	t.Parallel()
	rules := allRules(t)
	for _, tc := range []struct {
		name   string
		change func(*rule)
		notice string // promtool's message then, after the alert's name
		of     func(rule) bool
	}{
		{"never fires", func(r *rule) {
			r.Expr = "vector(0) > 1"
		}, `\s+exp:\[\n[^\]]+\],\s+got:\[\]`, func(rule) bool { return true }},
		{"always fires", func(r *rule) {
			r.Expr = "vector(1)"
			r.For = ""
		}, `\s+exp:\[\],\s+got:\[\n`, func(rule) bool { return true }},
		{"fires at once", func(r *rule) { r.For = "" }, `\s+exp:\[\],\s+got:\[\n`, func(r rule) bool {
			return r.For != ""
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := runRuleTests(t, tc.change)
			if err == nil {
				t.Fatalf("the tests pass:\n%s", out)
			}
			for name, r := range rules {
				if tc.of(r) && !regexp.MustCompile(`alertname: `+name+`, time: \w+,`+tc.notice).Match(out) {
					t.Errorf("no test notices that %s %s", name, tc.name)
				}
			}
		})
	}
}

// runRuleTests runs the unit tests against the rules, each changed, and returns promtool's output.
// Annotations are left out, because a test would have to repeat them.
func runRuleTests(t *testing.T, change func(*rule)) ([]byte, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs promtool")
	}
	tools := prometheus.Require(t)
	groups := readRules(t)
	for _, g := range groups {
		for i := range g.Rules {
			g.Rules[i].Annotations = nil
			change(&g.Rules[i])
		}
	}
	dir := t.TempDir()
	tests := readRuleTests(t)
	tests.Files = []string{"rules.json"}
	for name, content := range map[string]any{"rules.json": map[string]any{"groups": groups}, "tests.json": tests} {
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return exec.CommandContext(t.Context(), tools.Promtool, "test", "rules",
		filepath.Join(dir, "tests.json")).CombinedOutput()
}
