package clients_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/wait"
)

// kubectlReads are commands whose answers are those of the cluster, except for ages.
var kubectlReads = []string{
	"get cm,deploy,lamps -o wide",
	"get cm,deploy,lm -o yaml",
	"get cm -l app=web --show-labels",
	"get cm --field-selector metadata.name!=a -o name",
	"get cm --chunk-size=1",
	"get cm --sort-by=.metadata.name -o custom-columns=NAME:.metadata.name,V:.data.v",
	"get cm none",
	"describe cm,lamps",
	"explain lamps",
	"explain lamps --recursive",
	"explain lm.spec.color",
	"explain lamps.spec.modes.name",
	"explain lamps.none",
	"api-resources --api-group=past.example.com",
	"version",
	"rollout status deploy/web --watch=false",
}

// kubectlWrites are commands that the past refuses. The first word is for standard input.
var kubectlWrites = []string{
	"changed apply -f -",
	"changed apply -f - --dry-run=server",
	"changed apply -f - --server-side",
	"changed apply -f - --server-side --force-conflicts --dry-run=server",
	"changed diff -f -",
	"changed diff --server-side -f -",
	"changed replace -f -",
	"new create -f -",
	"new apply -f -",
	"new diff -f -",
	"- edit cm a",
	"- delete cm a",
	"- delete lamps --all",
	"- label cm a x=y",
	"- annotate lamp hall x=y",
	`- patch deploy web -p {"spec":{"replicas":1}}`,
	"- set image deploy/web app=web:2",
	"- rollout restart deploy/web",
}

var (
	inputs = map[string]string{
		"-": "",
		"changed": `
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {v: "9"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: "web:1"}]}
---
apiVersion: past.example.com/v1
kind: Lamp
metadata: {name: hall}
spec: {color: green}
`,
		"new": `
apiVersion: v1
kind: ConfigMap
metadata: {name: new}
---
apiVersion: past.example.com/v1
kind: Lamp
metadata: {name: new}
spec: {color: green}
`,
	}
	ages = regexp.MustCompile(`\b([0-9]+[ydhms])+\b|<invalid>`)
	gaps = regexp.MustCompile(`[ \t]+`)
)

// tool is a command line tool with its environment.
type tool struct {
	path, kubeconfig, namespace string
	env                         []string
	warnings                    bool // in what run returns
}

// run returns what a command prints, with its exit code. Ages are left out, and warnings of the
// past unless they are wanted.
func (c *tool) run(t *testing.T, stdin string, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.path, append([]string{"-n", c.namespace}, args...)...)
	cmd.Env = append(environment(t, c.kubeconfig), c.env...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	text := stdout.String()
	for line := range strings.Lines(stderr.String()) {
		if c.warnings || !strings.HasPrefix(line, "Warning: ") {
			text += "stderr: " + line
		}
	}
	return gaps.ReplaceAllString(ages.ReplaceAllString(text, "AGE"), " "), cmd.ProcessState.ExitCode()
}

// answers returns the answers of commands.
func (c *tool) answers(t *testing.T, commands []string) string {
	t.Helper()
	all := ""
	for _, command := range commands {
		out, code := c.run(t, "", strings.Fields(command)...)
		all += fmt.Sprintf("$ %s\n%sexit code %d\n", command, out, code)
	}
	return all
}

// refuses checks that the past refuses each of some commands, and says why.
func (c *tool) refuses(t *testing.T, commands []string) {
	t.Helper()
	for _, command := range commands {
		words := strings.Fields(command)
		out, code := c.run(t, inputs[words[0]], words[1:]...)
		if code == 0 || !strings.Contains(out, "the past cannot be changed") || strings.Contains(out, "openapi") {
			t.Errorf("%s: exit code %d\n%s", command, code, out)
		}
	}
}

// follow returns the lines of `kubectl get --watch` until the ConfigMap "last" is there. It calls
// ready once all is listed.
func (c *tool) follow(t *testing.T, ready func()) []string {
	t.Helper()
	p := start(t, c.kubeconfig, c.path, "-n", c.namespace, "get", "cm", "--watch", "--output-watch-events",
		"--no-headers",
		"-o",
		"custom-columns=TYPE:.type,NAME:.object.metadata.name,RV:.object.metadata.resourceVersion,V:.object.data.v")
	has := func(name string) {
		wait.Eventually(t, limit, func() error {
			for _, line := range p.output() {
				if fields := strings.Fields(line); len(fields) > 1 && fields[1] == name {
					return nil
				}
			}
			return fmt.Errorf("%s: %q %s", name, p.output(), &p.stderr)
		})
	}
	has("c")
	ready()
	has("last")
	p.cancel()
	<-p.ended
	return p.output()
}

// askKubectl tests one kubectl.
func askKubectl(t *testing.T, c *cluster, path, namespace string) {
	edited := filepath.Join(t.TempDir(), "edit")
	if err := os.WriteFile(edited, []byte("#!/bin/sh\nsed -i 's/v: .1./v: \"9\"/' \"$1\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	kubectl := tool{path: path, kubeconfig: c.Kubeconfig, namespace: namespace, env: []string{"KUBE_EDITOR=" + edited}}
	c.stage(t, namespace)
	want := kubectl.answers(t, kubectlReads)
	from := c.Now(t)
	seen := kubectl.follow(t, func() { c.change(t, namespace) })
	to := c.Now(t)
	c.record(t, namespace)

	moment := fmt.Sprintf("rv:%d", from)
	root := c.serve(t, "--at", moment)
	for _, kubeconfig := range []string{root, below(t, root, "/at/"+moment)} {
		kubectl.kubeconfig = kubeconfig
		if diff := gocmp.Diff(want, kubectl.answers(t, kubectlReads)); diff != "" {
			t.Errorf("-live +record\n%s", diff)
		}
	}
	kubectl.refuses(t, kubectlWrites)
	for command, answer := range map[string]string{
		"auth whoami":             "kubecdc",
		"auth can-i list lamps":   "yes",
		"auth can-i create lamps": "no",
		"explain deploy":          "The record does not have the schemas of Kubernetes' own kinds.",
		"explain deploy.spec":     "The record does not have the schemas of Kubernetes' own kinds.",
		"explain cm.data":         "The record does not have the schemas of Kubernetes' own kinds.",
		"get --raw /openapi/v3":   "apis/past.example.com/v1",
		"logs web-1":              "the record has no log of pods",
	} {
		out, _ := kubectl.run(t, "", strings.Fields(command)...)
		if one := strings.Join(strings.Fields(out), " "); !strings.Contains(one, answer) {
			t.Errorf("%s: want %q\n%s", command, answer, out)
		}
	}
	kubectl.kubeconfig = c.serve(t, "--from", moment, "--to", fmt.Sprintf("rv:%d", to), "--speed", "max")
	if diff := gocmp.Diff(seen, kubectl.follow(t, func() {})); diff != "" {
		t.Errorf("replay: -live +record\n%s", diff)
	}
}
