package clients_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// findings returns what popeye finds in a cluster, a line each: the linter, the object, the level
// and the message.
func findings(t *testing.T, path, kubeconfig string, args ...string) []string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	args = append([]string{"--out", "json", "--force-exit-zero", "--logs", log, "--lint", "ok"}, args...)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = environment(t, kubeconfig)
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("popeye: %v: %s", err, raw)
	}
	var report struct {
		Popeye struct {
			Score    int
			Sections []struct {
				Linter, GVR string
				Tally       map[string]any
				Issues      map[string][]struct {
					Group, Message string
					Level          int
				}
			}
			Errors json.RawMessage // an object whose members have one name
		}
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		t.Fatalf("popeye: %v: %s", err, raw)
	}
	out := []string{fmt.Sprintf("score %d", report.Popeye.Score)}
	out = append(out, popeyeError.FindAllString(string(report.Popeye.Errors), -1)...)
	for _, section := range report.Popeye.Sections {
		out = append(out, fmt.Sprintf("%s %s %v", section.Linter, section.GVR, section.Tally))
		for object, issues := range section.Issues {
			for _, issue := range issues {
				said := fmt.Sprintf("%s: %d %s", issue.Group, issue.Level, issue.Message)
				out = append(out, section.Linter+" "+object+" "+said)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// popeyeError matches an error in a report. Several linters may report that one resource is not
// served: how many do changes from run to run, against one cluster too.
var popeyeError = regexp.MustCompile(`"error":"[^"]*"`)

// askPopeye compares what popeye finds in a cluster and in its record.
func askPopeye(t *testing.T, c *cluster, path, namespace string) {
	c.stage(t, namespace)
	// Linters run at once and share what they load. For one namespace that of namespaces loads all
	// Pods, so others see all or few of them. So popeye is run for the cluster, and for a namespace
	// with one linter at a time.
	scopes := [][]string{
		{"-A"},
		{"-n", namespace, "-s", "po"},
		{"-n", namespace, "-s", "dp"},
		{"-n", namespace, "-s", "svc"},
	}
	var want [][]string
	for _, scope := range scopes {
		want = append(want, findings(t, path, c.Kubeconfig, scope...))
	}
	moment := c.moment(t)
	c.do(t, "", "delete", "pod,deploy,svc,hpa,rolebinding", "-n", namespace, "--all", "--force")
	c.change(t, namespace)
	c.record(t, namespace)

	root := c.serve(t, "--at", moment)
	for i, scope := range scopes {
		all := strings.Join(want[i], "\n")
		if !strings.Contains(all, namespace+"/web") || i == 0 && len(want[i]) < 40 {
			t.Errorf("popeye %v found only\n%s", scope, all)
		}
		for _, kubeconfig := range []string{root, below(t, root, "/at/"+moment)} {
			if diff := gocmp.Diff(want[i], findings(t, path, kubeconfig, scope...)); diff != "" {
				t.Errorf("popeye %v: -live +record\n%s", scope, diff)
			}
		}
	}
}
