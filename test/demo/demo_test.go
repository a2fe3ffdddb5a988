package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/suite"
	"github.com/kubecdc/kubecdc/test/wait"
)

func TestMain(m *testing.M) {
	if err := suite.Begin(2); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(suite.Tests(m.Run))
}

// TestFollowsAClusterAndWritesNothingToIt follows the cluster of KUBECONFIG_DEMO as a user with
// read access only. It then checks the demo's requests in the API server's audit log.
func TestFollowsAClusterAndWritesNothingToIt(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane and the demo, which takes seconds")
	}
	const viewer = "viewer"
	dir := t.TempDir()
	audit, policy := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n"+
		"rules: [{level: Metadata, users: ["+viewer+"]}, {level: None}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{
		NoControllerManager: true,
		Users:               []controlplane.User{{Name: viewer}},
		APIServerArgs:       []string{"--audit-policy-file=" + policy, "--audit-log-path=" + audit},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Stop()
	client, err := dynamic.NewForConfig(cluster.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	permitReading(t, client, viewer)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, viewer); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)

	var shown buffer
	d, err := fromEnvironment(func(name string) string {
		return map[string]string{
			"KUBECONFIG_DEMO":         kubeconfig,
			"KUBECONFIG_DEMO_CONTEXT": "server-0",
			"DEMO_SECONDS":            "120",
		}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	d.binary, d.screen = build.Agent(t), newScreen(&shown, func(string) string { return "" })
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()

	waitFor := func(text string) {
		t.Helper()
		shown.wait(t, text, ended)
	}
	waitFor("The demo writes nothing to it")
	waitFor("kubecdc tail --diff")
	configMaps := client.Resource(v1("", "configmaps")).Namespace("default")
	object := manifest("v1", "ConfigMap", "colours", map[string]any{"data": map[string]any{"sky": "grey"}})
	if _, err := configMaps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := configMaps.Patch(t.Context(), "colours", types.MergePatchType, []byte(`{"data":{"sky":"blue"}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor("+   sky: blue")
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("interrupted, the demo ends with error %v\n%s", err, shown.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v (error %v)", left, err)
	}

	verbs := auditedVerbs(t, audit)
	for verb, uris := range verbs {
		if !slices.Contains([]string{"get", "list", "watch"}, verb) {
			t.Errorf("the demo asked the cluster to %s %v", verb, uris)
		}
	}
	if len(verbs["watch"]) == 0 {
		t.Errorf("the audit log has no watch of user %s: %v", viewer, verbs)
	}
}

// TestRunsWithTheBinariesOfEnvtest runs the demo with etcd, kube-apiserver and kubectl, as
// installed by setup-envtest. Without a controller manager, the Pods of the Deployment still come
// and go. Another process has the agent's default port.
func TestRunsWithTheBinariesOfEnvtest(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane and the demo, which takes seconds")
	}
	multi, err := controlplane.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	assets := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' %s \"$@\"\n", multi, name)
		if err := os.WriteFile(filepath.Join(assets, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	if taken, err := net.Listen("tcp", "127.0.0.1:8080"); err == nil {
		defer taken.Close()
	} // otherwise it is taken already
	d, err := fromEnvironment(func(name string) string {
		return map[string]string{"DEMO_STARTED": "1764200000", "DEMO_STAGES": "agent compiled=1764200002.5"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	var shown buffer
	d.binary, d.screen = build.Agent(t), newScreen(&shown, func(string) string { return "" })
	ctx, interrupt := context.WithTimeout(t.Context(), 3*time.Minute)
	defer interrupt()
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	// The Pods of the first version are replaced by those of the second one.
	for _, text := range []string{
		"starting etcd and kube-apiserver of " + assets, " created pods shop/web-1 ",
		"# the deployer rolls out shop/web:1.1", " deleted pods shop/web-1\n",
	} {
		shown.wait(t, text, ended)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("interrupted, the demo ends with error %v\n%s", err, &shown)
	}
	if want := "(agent compiled 2.5 s, control plane started "; !strings.Contains(shown.String(), want) {
		t.Errorf("not shown: %q\n%s", want, &shown)
	}
}

// permitReading lets the user read everything.
func permitReading(t *testing.T, client dynamic.Interface, user string) {
	t.Helper()
	const group = "rbac.authorization.k8s.io"
	for resource, object := range map[string]*unstructured.Unstructured{
		"clusterroles": manifest(group+"/v1", "ClusterRole", user, map[string]any{"rules": []any{
			map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"get", "list", "watch"}},
		}}),
		"clusterrolebindings": manifest(group+"/v1", "ClusterRoleBinding", user, map[string]any{
			"roleRef":  map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": user},
			"subjects": []any{map[string]any{"apiGroup": group, "kind": "User", "name": user}},
		}),
	} {
		if _, err := client.Resource(v1(group, resource)).
			Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// auditedVerbs returns the requested URIs by verb.
func auditedVerbs(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string][]string{}
	for line := range bytes.Lines(text) {
		var event struct{ Verb, RequestURI string }
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%s: %v: %s", file, err, line)
		}
		verbs[event.Verb] = append(verbs[event.Verb], event.RequestURI)
	}
	return verbs
}

// buffer is a bytes.Buffer for a writer and a reader at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var spaces = regexp.MustCompile(` +`)

// spaced returns text without the spaces that align columns.
func spaced(text string) string { return spaces.ReplaceAllString(text, " ") }

// wait returns when the text has been written, in any alignment. It fails the test if the demo ends
// before, or after minutes.
func (b *buffer) wait(t *testing.T, text string, ended <-chan error) {
	t.Helper()
	wait.Eventually(t, 2*time.Minute, func() error {
		if strings.Contains(spaced(b.String()), spaced(text)) {
			return nil
		}
		select {
		case err := <-ended:
			t.Fatalf("the demo ended before it showed %q: %v\n%s", text, err, b)
		default:
		}
		return fmt.Errorf("not shown: %q\n%s", text, b)
	})
}

func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want string // the error; "": none
		is   error
	}{
		"nothing": {},
		"seconds": {env: map[string]string{"DEMO_SECONDS": "30"}},
		"no number": {env: map[string]string{
			"DEMO_SECONDS": "30s",
		}, want: `DEMO_SECONDS: must be a whole number of seconds, got "30s"`},
		"no time at all": {env: map[string]string{
			"DEMO_SECONDS": "0",
		}, want: `DEMO_SECONDS: must be a whole number of seconds, got "0"`},
		"no such file": {env: map[string]string{
			"KUBECONFIG_DEMO": "/nonexistent",
		}, want: "KUBECONFIG_DEMO: stat /nonexistent: no such file or directory", is: fs.ErrNotExist},
		"a home that the shell left": {env: map[string]string{
			"HOME":            "/nonexistent",
			"KUBECONFIG_DEMO": "~/.kube/config",
		}, want: "KUBECONFIG_DEMO: stat /nonexistent/.kube/config: no such file or directory", is: fs.ErrNotExist},
		"stages": {env: map[string]string{
			"DEMO_STARTED": "1764200000.25",
			"DEMO_STAGES":  "agent compiled=1764200002.5,demo compiled=1764200003",
		}},
		"a stage without time": {env: map[string]string{
			"DEMO_STAGES": "agent compiled",
		}, want: `DEMO_STAGES: agent compiled: must be a name, = and seconds since 1970, got "agent compiled"`},
		"a context without file": {env: map[string]string{
			"KUBECONFIG_DEMO_CONTEXT": "c",
		}, want: "KUBECONFIG_DEMO_CONTEXT: names a context of the file KUBECONFIG_DEMO, which is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fromEnvironment(func(name string) string { return c.env[name] })
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got error %q, want %q", got, c.want)
			}
		})
	}
}
