package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/chart"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestHelmAgainstThePast runs Helm against a cluster, and against two records of the cluster. In
// the one with the values of Secrets, Helm prints what it printed. In the other one it says why it
// cannot, with each of its drivers. It never shows no releases.
func TestHelmAgainstThePast(t *testing.T) {
	slow(t)
	t.Parallel()
	helm, err := chart.Helm(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	p := world.SharedPlane(t)
	const ns = "charted"
	p.NewNamespace(t, ns)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"Chart.yaml":        "apiVersion: v2\nname: small\nversion: 1.2.3\n",
		"values.yaml":       "color: red\n",
		"templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}\"}\ndata: {color: \"{{ .Values.color }}\"}\n",
	} {
		path := filepath.Join(dir, "small", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(kubeconfig, driver string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), helm, append(args, "--namespace", ns, "--kubeconfig", kubeconfig)...)
		cmd.Env = append(os.Environ(), "HELM_DRIVER="+driver, "HELM_CACHE_HOME="+filepath.Join(dir, "cache"), "HELM_CONFIG_HOME="+filepath.Join(dir, "config"),
			"HELM_DATA_HOME="+filepath.Join(dir, "data"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	releases := map[string]string{"secret": "web", "configmap": "db"} // by driver
	for driver, release := range releases {
		for _, args := range [][]string{{"install", release, filepath.Join(dir, "small")}, {"upgrade", release, filepath.Join(dir, "small"), "--set", "color=blue"}} {
			if out, err := run(p.Kubeconfig, driver, args...); err != nil {
				t.Fatalf("helm %s: %v: %s", args, err, out)
			}
		}
	}
	serve := func(extra string) string {
		bus := world.StartBus(t)
		a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: "  - resources: [secrets, configmaps]\n    namespaces: [" + ns + "]", Extra: extra})
		a.Ready(t)
		world.ReadStream(t, bus, p.Reader()).Completed(t, "secrets", "configmaps")
		return world.ServePast(t, "--bus", bus.URL).Kubeconfig
	}
	whole, redacted := serve("redaction: {secrets: false}"), serve("")
	for driver, release := range releases {
		for _, args := range [][]string{{"list"}, {"history", release}, {"get", "values", release, "--all"}, {"get", "manifest", release, "--revision", "1"}, {"status", release}} {
			want, err := run(p.Kubeconfig, driver, args...)
			if err != nil || args[0] == "list" && !strings.Contains(want, release) {
				t.Fatalf("helm %s: %v: %s", args, err, want)
			}
			got, err := run(whole, driver, args...)
			ages := func(text string) string {
				return blanks.ReplaceAllString(agesOfTables.ReplaceAllString(text, "AGE"), " ")
			}
			if diff := cmp.Diff(ages(want), ages(got)); err != nil || diff != "" {
				oracle.Fail(t, "%s: helm %s: %v: -live +record\n%s", driver, args, err, diff)
			}
			if got, err = run(redacted, driver, args...); err == nil || !strings.Contains(got, "redaction.secrets: false") {
				oracle.Fail(t, "%s: helm %s of a redacted record: %v: %s", driver, args, err, got)
			}
		}
	}
	kubectl := filepath.Join(dir, "kubectl")
	if err := p.WriteKubectl(kubectl); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", redacted, "--cache-dir", dir, "get", "secrets", "-n", ns).CombinedOutput()
	text := blanks.ReplaceAllString(string(out), " ")
	for _, line := range []string{"Warning: secrets: some objects have redacted values", "sh.helm.release.v1.web.v2 helm.sh/release.v1 <unknown> "} {
		if err != nil || !strings.Contains(text, line) {
			oracle.Fail(t, "kubectl get secrets: %v: no %q in %s", err, line, text)
		}
	}
}
