package clients_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// chart is a chart with one object.
var chart = map[string]string{
	"Chart.yaml":          "apiVersion: v2\nname: small\nversion: 1.2.3\n",
	"values.yaml":         "color: red\n",
	"templates/NOTES.txt": "The color is {{ .Values.color }}.\n",
	"templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}\"}\n" +
		"data: {color: \"{{ .Values.color }}\"}\n",
}

// helmReads are commands about the release RELEASE whose answers are those of the cluster, except
// for ages.
var helmReads = []string{
	"list",
	"list -o yaml --all-namespaces",
	"status RELEASE",
	"status RELEASE --revision 1",
	"history RELEASE",
	"get all RELEASE",
	"get hooks RELEASE",
	"get manifest RELEASE --revision 1",
	"get metadata RELEASE",
	"get notes RELEASE",
	"get values RELEASE --all",
}

// helmWrites are commands that the past refuses.
var helmWrites = []string{
	"upgrade RELEASE CHART --set color=white",
	"rollback RELEASE 1",
	"uninstall RELEASE --debug", // without it, Helm says only that it failed
	"install another CHART",
}

// askHelm tests one Helm, with both of its drivers. In the record with the values of Secrets, it
// prints what it printed. In the one without them, it says why it cannot. It never shows no
// releases.
func askHelm(t *testing.T, c *cluster, path, namespace string) {
	dir := filepath.Join(t.TempDir(), "small")
	for name, content := range chart {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	redacted := c.startRecording(t, []string{"secrets", "configmaps", "namespaces"}, "")
	releases := map[string]string{"secret": "web", "configmap": "db"} // by driver
	words := func(driver, command string) []string {
		return strings.Fields(strings.NewReplacer("RELEASE", releases[driver], "CHART", dir).Replace(command))
	}
	helm := func(driver, kubeconfig string) *tool {
		return &tool{path: path, kubeconfig: kubeconfig, namespace: namespace, env: []string{"HELM_DRIVER=" + driver}}
	}
	do := func(driver, command string) {
		if out, code := helm(driver, c.Kubeconfig).run(t, "", words(driver, command)...); code != 0 {
			t.Fatalf("helm %s: exit code %d: %s", command, code, out)
		}
	}
	answers := func(driver, kubeconfig string) string {
		var commands []string
		for _, command := range helmReads {
			commands = append(commands, strings.Join(words(driver, command), " "))
		}
		return helm(driver, kubeconfig).answers(t, commands)
	}
	want := map[string]string{}
	for driver, release := range releases {
		do(driver, "install RELEASE CHART")
		do(driver, "upgrade RELEASE CHART --set color=blue")
		want[driver] = answers(driver, c.Kubeconfig)
		isListed := strings.Contains(want[driver], release+" "+namespace+" 2 ")
		if strings.Contains(want[driver], "exit code 1") || !isListed {
			t.Fatal(want[driver])
		}
	}
	moment := c.moment(t)
	for driver := range releases {
		do(driver, "uninstall RELEASE")
	}
	c.change(t, namespace)
	c.record(t, namespace)
	redacted.record(t, namespace)

	root := c.serve(t, "--at", moment)
	for driver := range releases {
		for _, kubeconfig := range []string{root, below(t, root, "/at/"+moment)} {
			if diff := gocmp.Diff(want[driver], answers(driver, kubeconfig)); diff != "" {
				t.Errorf("%s: -live +record\n%s", driver, diff)
			}
		}
		for _, command := range helmWrites {
			out, code := helm(driver, root).run(t, "", words(driver, command)...)
			if code == 0 || !strings.Contains(out, "the past cannot be changed") {
				t.Errorf("%s: helm %s: exit code %d\n%s", driver, command, code, out)
			}
		}
	}
	root = redacted.serve(t, "--at", moment)
	for driver := range releases {
		for _, command := range helmReads {
			out, code := helm(driver, root).run(t, "", words(driver, command)...)
			if code == 0 || !strings.Contains(out, "redaction.secrets: false") {
				t.Errorf("%s: helm %s of a redacted record: exit code %d\n%s", driver, command, code, out)
			}
		}
	}
	// Without Helm, the Secrets are in lists, with a warning, and show no number of values.
	kubectl := tool{path: c.kubectl, kubeconfig: root, namespace: namespace, warnings: true}
	out, code := kubectl.run(t, "", "get", "secrets")
	for _, line := range []string{
		"Warning: secrets: some objects have redacted values",
		"sh.helm.release.v1.web.v2 helm.sh/release.v1 <unknown> ",
	} {
		if code != 0 || !strings.Contains(out, line) {
			t.Errorf("kubectl get secrets: exit code %d: no %q in\n%s", code, line, out)
		}
	}
}
